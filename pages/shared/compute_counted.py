"""The model at hand built without contents and every product of it counted by torch, beside the exact figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.estimate import Estimate
from core.refusal import Refusal
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import MINUS, count, milliseconds

if TYPE_CHECKING:
    from core.lab.count import Counted, CountedPhase

MOST_LAYERS = 256
"""More than any model has; a dial goes further, and every layer takes milliseconds."""
_REFRESH_S = 0.05


@st.fragment(key="compute_counting")
def count_it(made: Estimate) -> None:
    """A button that counts; what it found is shown while the dials stay where they were."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("costs.count")))
    st.html(note(t("costs.count_note")))
    at = made.shape, made.request.context, made.request.batch
    is_asked = st.button(
        t("costs.count_button", model=made.shape.name, n=count(at[1]), batch=count(at[2])), key="cost_count"
    )
    if is_asked:
        try:
            st.session_state["cost_counted"] = at, _counted(made)
        except Refusal as refusal:
            st.html(fill('<p class="tbt-notice tbt-refusal">{text}</p>', text=refusal.sentence(language())))
            return
    counted_at, counted = st.session_state.get("cost_counted", (None, None))
    if counted is not None and counted_at == at:
        st.html(_found(counted))


def _counted(made: Estimate) -> Counted:
    shape, request = made.shape, made.request
    if shape.n_layers > MOST_LAYERS:
        raise Refusal("estimate.count_too_many_layers", n_layers=shape.n_layers, most=MOST_LAYERS)
    # Only now: torch takes seconds to import.
    from core.lab.count import count as count_products

    bar = st.progress(0.0, text=t("costs.counting"))
    shown = 0.0

    def on_layer(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _REFRESH_S:
            shown = now
            bar.progress(done / total, text=t("costs.counting_layer", done=count(done), total=count(total)))

    try:
        return count_products(shape, n_tokens=request.context, batch=request.batch, on_layer=on_layer)
    finally:
        bar.empty()


def _found(counted: Counted) -> Html:
    heads = [t(f"costs.count_{name}") for name in ("phase", "counted", "exact", "gap", "seconds")]
    phases = (("decode", counted.decode), ("prefill", counted.prefill))
    return table(heads, [_row(t(f"costs.count_{name}"), phase) for name, phase in phases])


def _row(name: str, phase: CountedPhase) -> Html:
    gap = phase.flops_exact - phase.flops_counted
    return row(
        name,
        f"{count(phase.flops_counted)} FLOP",
        f"{count(phase.flops_exact)} FLOP",
        f"{MINUS if gap < 0 else '+' if gap > 0 else ''}{count(abs(gap))} FLOP",
        milliseconds(phase.seconds),
    )
