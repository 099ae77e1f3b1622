"""Which experiment is open, and what all of them run on: a model that is loaded, and a prompt."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.link import fill_in_defaults
from pages.shared.settings import TECHNIQUES
from pages.shared.techniques import draft, elsewhere, heads, quantised, sampling, surgery, thought, two
from pages.shared.techniques.bench import Bench, heading_of, live_bench

LIVE: dict[str, Callable[[Bench], None]] = {
    "sampling": sampling.show,
    "weights": quantised.show_weights,
    "cache": quantised.show_cache,
    "draft": draft.show,
    "thought": thought.show,
    "heads": heads.show,
    "surgery": surgery.show,
    "two": two.show,
}


def show_experiment(name: str) -> None:
    """The experiment of one technique, from its question to its takeaway."""
    fill_in_defaults(TECHNIQUES)
    heading_of(name)
    if name not in LIVE:
        elsewhere.PANELS[name](st.session_state["terms_model"])
        return
    bench = live_bench()
    if bench is not None:
        LIVE[name](bench)
