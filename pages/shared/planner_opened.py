"""Which of the planner's figures is to be opened."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.estimate.derivations import derivations
from pages.shared.html import fill
from pages.shared.language import language, t
from pages.shared.opened_estimate import show_estimate
from pages.shared.planner import PlannerRow
from pages.shared.planner_table import row_card

# In the order of the table's columns; then what they are made of.
FIGURES = (
    "weight_bytes",
    "kv_bytes",
    "fit.needed_bytes",
    "fit.capacity_bytes",
    "fit.max_context",
    "fit.max_batch",
    "decode.time_floor_s",
    "prefill.time_floor_s",
    "params.total",
    "kv_bytes_per_token",
    "decode.flops_exact",
    "decode.bytes_read.weights",
    "decode.compute_s",
    "decode.memory_s",
    "prefill.flops_exact_causal",
    "prefill.compute_s",
    "prefill.memory_s",
)


_CHOSEN = "plan_open_chosen"


def open_a_figure(rows: Sequence[PlannerRow]) -> None:
    """Row, figure, and a button that opens the formula with its values."""
    st.html(fill('<h2 class="tbt-h2 tbt-plan-heading">{text}</h2>', text=t("planner.open_title")))
    with st.container(key="plan_open_row"):
        by_name = {_row_name(row): row for row in rows}
        chosen = st.selectbox(
            t("planner.open_row"), list(by_name), key="plan_open_at", filter_mode=None, persist_state="session"
        )
        row = by_name[chosen]
        known = derivations(row.made)
        named = {name: t(f"derivations.figure_{name.replace('.', '_')}") for name in FIGURES if name in known}
        names, before = list(named), st.session_state.get(_CHOSEN)
        figure = st.selectbox(
            t("planner.open_figure"),
            names,
            index=names.index(before) if before in names else 0,
            format_func=named.__getitem__,
            key=f"plan_open_figure_{language()}",  # streamlit would go on showing the other language's name
            filter_mode=None,
        )
        st.session_state[_CHOSEN] = figure
        if st.button(t("planner.open_button"), key="plan_open", type="primary"):
            show_estimate(figure, row.made)


def _row_name(row: PlannerRow) -> str:
    words = "planner.open_row_name" if row.slug else "planner.open_row_dropped"
    return t(words, model=row.model, card=row_card(row))
