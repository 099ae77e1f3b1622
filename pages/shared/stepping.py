"""From clicks to steps: the visitor's own run, the buttons that move it, and when each of them can be pressed."""

from __future__ import annotations

import streamlit as st

from pages.shared.controls import Controls
from pages.shared.html import Html
from pages.shared.language import t
from pages.shared.resources import engine
from pages.shared.visit import Slot, Started, Visit

PATIENCE_SECONDS = 0.4
ACTIONS = ("prefill", "decode", "step_back", "reset")


@st.cache_resource(scope="session", on_release=Slot.release, show_spinner=False, max_entries=4)
def slot_of(visit_key: str) -> Slot:
    """Where this visitor's run lies. Streamlit releases it the moment the connection is gone."""
    return Slot()


def current_visit() -> Visit:
    """This session's visit; nobody else's."""
    if "visit" not in st.session_state:
        st.session_state["visit"] = Visit()
    visit: Visit = st.session_state["visit"]
    return visit


def carry_out_click(visit: Visit, asked: Controls) -> None:
    """Hands the button that was pressed to the engine, and waits for the step, so that all that follows shows it."""
    slot, seen = slot_of(visit.key), st.session_state.get("version_drawn", 0)
    # A pressed button is known by its key before it is drawn: so it can be drawn in the state that follows.
    clicked = [action for action in ACTIONS if st.session_state.get(action)]
    if "prefill" in clicked and asked.model is not None:
        started = Started(model=asked.model, config=asked.config, in_chat=asked.in_chat)
        visit.prefill(engine(), slot, started, asked.prompt, seen)
    elif "decode" in clicked:
        visit.decode(engine(), slot, seen)
    elif "step_back" in clicked:
        visit.step_back(engine(), slot, seen)
    elif "reset" in clicked:
        visit.reset(engine(), slot, seen)
    if not visit.settle(PATIENCE_SECONDS):
        with st.spinner(t("working")):
            visit.settle()


def buttons(visit: Visit, asked: Controls, beside: Html) -> None:
    """The four buttons, and a line about the run beside them."""
    can_be_pressed = {
        "prefill": asked.model is not None,
        "decode": visit.can_decode,
        "step_back": visit.trace is not None,
        "reset": visit.trace is not None or visit.refusal is not None,
    }
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="actions"):
        for action in ACTIONS:
            main = action in ("prefill", "decode")
            enabled = can_be_pressed[action]
            st.button(t(action), key=action, type="primary" if main else "secondary", disabled=not enabled)
        if beside:
            st.html(beside)
    st.session_state["version_drawn"] = visit.version
