"""The plan: what to sweep, what it will cost, what a learner expects, and the button that begins it."""

from __future__ import annotations

import streamlit as st

from core.refusal import Refusal
from pages.shared.drawn import show_drawn
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.lab.asked import Asked, controls
from pages.shared.lab.foresee import Foreseen, foresee
from pages.shared.lab.prediction import predict
from pages.shared.lab.running import duration, show_others
from pages.shared.lab.start import begin
from pages.shared.lab.visitor import store, visitor_key
from pages.shared.language import t
from pages.shared.link import write_link
from pages.shared.numbers import count, scaled_bytes
from pages.shared.settings import LAB
from pages.shared.trouble import refuse
from pages.shared.units import units

_REFUSED = "lab_start_refused"


@st.fragment(key="lab_plan")
def show_plan() -> None:
    """Settings, cost, prediction, Start."""
    with st.container(border=True, key="lab_settings"):
        st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("lab.plan")))
        asked = controls()
        write_link(LAB)
        cost = None if isinstance(asked, Refusal) else _foreseen(asked)
        if isinstance(asked, Refusal):
            refuse(asked)
    with st.container(border=True, key="lab_predicting"):
        predictions = () if isinstance(asked, Refusal) else predict(asked)
        is_running = store().under_way(visitor_key()) is not None
        can_start = isinstance(cost, Foreseen) and not is_running
        if st.button(t("lab.start"), key="lab_start", type="primary", disabled=not can_start):
            st.session_state[_REFUSED] = None
            assert not isinstance(asked, Refusal)
            try:
                with st.spinner(t("lab.making")):
                    begin(visitor_key(), asked, predictions)
            except Refusal as refusal:
                st.session_state[_REFUSED] = refusal
            st.rerun()
        if is_running:
            st.html(note(t("lab.running_already")))
        else:
            show_others()
        if st.session_state.get(_REFUSED) is not None:
            refuse(st.session_state[_REFUSED])


def _foreseen(asked: Asked) -> Foreseen | None:
    """The cost on the page; a sentence for what will not fit."""
    try:
        cost = foresee(asked)
    except Refusal as refusal:
        refuse(refusal)
        return None
    if cost is None:
        show_drawn("lab_probing", note(t("lab.probing")), is_under_way=True)
    else:
        st.html(_cost(cost))
    return cost


def _cost(cost: Foreseen) -> Html:
    figures = (
        ("cost_points", count(cost.n_rows), ""),
        ("cost_memory", scaled_bytes(cost.needed_bytes, units()), scaled_bytes(cost.budget_bytes, units())),
        ("cost_weights", scaled_bytes(cost.weight_bytes, units()), ""),
        ("cost_time", duration(cost.seconds), duration(cost.filling_s)),
    )
    items = join(
        fill("<div><dt>{name}</dt><dd>{value}</dd></div>", name=t(f"lab.{name}", more=more), value=value)
        for name, value, more in figures
    )
    return fill('<dl class="tbt-lab-cost">{items}</dl>', items=items)
