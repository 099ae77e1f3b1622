"""What do weights, cache, prefill and decode cost, and from which context length on does attention decide?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.compute_counted import count_it
from pages.shared.compute_story import chapter_against_exact, crossings, experts_or_dense, prediction, takeaway
from pages.shared.costs import LAB, Costs, controls, show_cards, show_dials, show_live_chart
from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.link import write_link
from pages.shared.opened_estimate import show_what_was_clicked

PAGE = "memory_and_compute"
CSS = Path(__file__).resolve().parent.parent / "assets" / "costs.css"
DIALS = ("batch", "context", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_model", "d_ff", "vocab_size")
FLOP, BYTES, NUMBER = "FLOP", "B", ""
# Panel → its figures: the chapter's first, then the exact ones.
CARDS = {
    "decode": (("decode.flops_chapter", FLOP), ("decode.flops_exact", FLOP), ("decode.intensity", "FLOP/B")),
    "memory": (("weight_bytes", BYTES), ("kv_bytes", BYTES)),
    "prefill": (
        ("prefill.flops_chapter", FLOP),
        ("prefill.flops_exact", FLOP),
        ("prefill.flops_exact_causal", FLOP),
    ),
    "experts": (("params.total", NUMBER), ("params.active", NUMBER)),
}
FIGURES = tuple(figure for cards in CARDS.values() for figure, _ in cards)


def panel(costs: Costs, name: str) -> None:
    """A heading, and the figures that the chart below them is about."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t(f"costs.panel_{name}")))
    cards = tuple({"figure": figure, "unit": unit, "kind": ""} for figure, unit in CARDS[name])
    show_cards(costs, f"cards_{name}", cards, FIGURES)


@st.fragment(key=LAB)
def laboratory() -> None:
    """Choices, dials and what follows them: a dial that is let go draws nothing else."""
    with st.container(border=True, key="costs_guess"):
        prediction()
    with st.container(border=True, key="costs_controls"):
        costs = controls(PAGE)
        show_dials(costs, DIALS, FIGURES)
    with st.container(key="compute_columns"):
        with st.container(key="compute_left"):
            panel(costs, "decode")
            show_live_chart(costs, "decode_against_context", FIGURES, ("xaxis",))
            panel(costs, "prefill")
            is_causal = st.toggle(t("costs.causal"), key="cost_causal", persist_state="session")
            show_live_chart(costs, "prefill_causal" if is_causal else "prefill_square", FIGURES, ("xaxis",))
            with st.container(key="compute_count"):
                count_it(costs.made)
        with st.container(key="compute_right"):
            panel(costs, "memory")
            show_live_chart(costs, "memory_against_context", FIGURES, ("xaxis",))
            crossings(costs.made)
            panel(costs, "experts")
            if experts_or_dense(costs.made):
                show_live_chart(costs, "experts_against_batch", FIGURES, ("xaxis",))
            chapter_against_exact(costs.made)
    takeaway(costs.made)
    write_link(PAGE)
    show_what_was_clicked(costs.made)


st.html(CSS)
laboratory()
