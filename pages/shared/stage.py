"""The stage: the component that draws a run, and the events its visitor sends back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from pages.shared.component import component

KEY, LABORATORY = "stage", "laboratory"
ACTIONS = ("prefill", "decode", "step_back", "reset")
# These change the settings above the stage: "resume" asks for the run and settings a tab had before it was refreshed.
SETTING_EVENTS = ("next_turn", "resume")
# Besides: "look" only asks for what is missing, "open" for a figure's formula, "speed" sets the steps a second.
EVENTS = (*ACTIONS, *SETTING_EVENTS, "look", "open", "speed")
WHATEVER = -2
"""What an event says it has seen when steps were streaming past."""
HEARD = "stage_event"
"""Where the session keeps an event until the page answers it."""


@dataclass(frozen=True, slots=True)
class Event:
    """What the visitor did on the stage: unchecked text and numbers from a browser, of the right types.

    `seen` is the version of the visit on their screen, `have` the steps of run `run` of `visit` that arrived there.
    """

    action: str
    visit: str = ""
    run: int = -1
    seen: int = -1
    have: int = 0
    value: int = 0
    name: str = ""


def read_event(raw: object) -> Event | None:
    """An event as the browser sent it; None for anything else."""
    if not isinstance(raw, Mapping) or raw.get("action") not in EVENTS:
        return None
    numbers = {key: raw[key] for key in ("run", "seen", "have", "value") if type(raw.get(key)) is int}
    texts = {key: raw[key][:64] for key in ("visit", "name") if isinstance(raw.get(key), str)}
    return Event(raw["action"], **numbers, **texts)


def heard(*actions: str) -> Event | None:
    """The event this run of the page is to answer, if it is one of `actions` (none named: any); given out once."""
    event = read_event(st.session_state.get(HEARD))
    if event is None or (actions and event.action not in actions):
        return None
    del st.session_state[HEARD]
    return event


def show_stage(frame: bytes) -> None:
    """Draws the stage, or hands a new frame to the one that stands there already."""
    component("tbt_stage", "stage")(key=KEY, data=frame, on_event_change=_listen)


def _listen() -> None:
    # A click on the navigation may carry an event of the stage along, which is gone by then.
    raw = (st.session_state.get(KEY) or {}).get("event")
    st.session_state[HEARD] = raw
    event = read_event(raw)
    if event is not None and KEY in st.session_state and event.action in (*SETTING_EVENTS, "prefill"):
        # The stage alone would be drawn again: without the settings that change, or with a prompt that is out of date.
        st.rerun(LABORATORY)
