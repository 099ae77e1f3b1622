"""The formula beside real tensors: a cache that is allocated on request, and that of the model page 1 has stepped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.catalogue import models
from core.estimate.kv import kv_bytes
from core.refusal import Refusal
from pages.shared.costs import NUMBERS, Costs
from pages.shared.html import fill
from pages.shared.html_parts import card, note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, scaled_bytes
from pages.shared.resources import engine
from pages.shared.settings import FIRST_MODEL
from pages.shared.units import units

if TYPE_CHECKING:
    from core.lab.allocate import Allocated
    from core.model.load import LanguageModel

MOST_BYTES = 96 * 2**20
"""What one click may take of the memory for caches: small enough for a whole class to click."""


def allocate_for_real(costs: Costs) -> None:
    """A button that allocates this very cache, as far as the limit goes, and compares its bytes with the formula's."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("costs.allocate")))
    st.html(note(t("costs.allocate_note", most=scaled_bytes(MOST_BYTES, units()))))
    if st.button(t("costs.allocate_button"), key="cost_allocate"):
        st.html(_allocated(costs))


def _allocated(costs: Costs) -> str:
    # Only now: torch takes seconds to import.
    from core.engine.exclusive import Measurement
    from core.lab.allocate import allocate

    shape, request = costs.made.shape, costs.made.request
    # In the exclusive slot, so that nobody's step makes it slower, and out of the memory for caches.
    measurement = Measurement("allocate", [lambda: allocate(shape, request, MOST_BYTES)], n_bytes=MOST_BYTES)
    try:
        done: Allocated = engine().measure(measurement).future.result()[0].value
    except Refusal as refusal:
        return fill('<p class="tbt-notice tbt-refusal">{text}</p>', text=refusal.sentence(language()))
    gap = done.bytes_tensors - done.bytes_formula
    rows = [
        row(t("costs.real_point"), t("costs.real_at", n=count(done.n_tokens), batch=count(done.batch))),
        row(t("costs.real_formula"), f"{count(done.bytes_formula)} B"),
        row(t("costs.real_tensors", count=count(done.n_tensors)), f"{count(done.bytes_tensors)} B"),
        row(t("costs.real_gap"), f"{count(gap)} B"),
        row(t("costs.real_seconds"), milliseconds(done.seconds)),
    ]
    return table([t("costs.real_what"), t("costs.real_value")], rows)


def live_model() -> None:
    """What page 1 has stepped in this session: its cache's tensors beside the formula, and a way to the dials."""
    visit = st.session_state.get("visit")
    if visit is None or visit.started is None or visit.trace is None or not visit.trace.steps:
        st.html(card(t("costs.live"), note(t("costs.live_none"))))
        return
    model, step = visit.started.model, visit.trace.steps[-1]
    n_kept = step.n_tokens if visit.started.config.use_cache else 0
    formula = kv_bytes(model.shape, n_tokens=n_kept, dtypes=model.kv_dtypes)
    rows = [
        row(t("costs.real_point"), t("costs.live_at", model=model.name, n=count(n_kept), dtype=model.dtype_name)),
        row(t("costs.real_formula"), f"{count(formula)} B"),
        row(t("costs.live_tensors"), f"{count(step.kv_bytes)} B"),
        row(t("costs.real_gap"), f"{count(step.kv_bytes - formula)} B"),
    ]
    st.html(card(t("costs.live"), table([t("costs.real_what"), t("costs.real_value")], rows)))
    st.button(t("costs.live_button", model=model.name), key="cost_live", on_click=_load, args=(model, n_kept))


def _load(model: LanguageModel, n_kept: int) -> None:
    """The dials take the live model's numbers; one outside the catalogue lends them to the first model there."""
    state = st.session_state
    state["cost_model"] = model.name if model.name in models() else FIRST_MODEL
    for name in NUMBERS:
        state[f"cost_{name}"] = getattr(model.config, name)
    state["cost_batch"], state["cost_context"], state["cost_kv_dtype"] = 1, max(1, n_kept), model.dtype_name
