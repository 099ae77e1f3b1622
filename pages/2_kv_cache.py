"""How much memory do the keys and values take, and what decides it?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.costs import LAB, controls, show_block, show_cards, show_dials, show_live_chart
from pages.shared.kv_real import allocate_for_real, live_model
from pages.shared.kv_story import findings, pages_of_tokens, prediction, takeaway
from pages.shared.kv_wrong import spot_the_wrong_number, wrong_table
from pages.shared.link import write_link
from pages.shared.opened_estimate import show_what_was_clicked

PAGE = "kv_cache"
CSS = Path(__file__).resolve().parent.parent / "assets" / "costs.css"
CARDS = (
    {"figure": "kv_bytes", "unit": "B", "kind": "main"},
    {"figure": "kv_bytes_per_token", "unit": "B"},
    {"figure": "weight_bytes", "unit": "B"},
    {"figure": "fit.max_context", "unit": ""},
    {"figure": "fit.max_batch", "unit": ""},
)
FIGURES = tuple(card["figure"] for card in CARDS)
DIALS = ("batch", "context", "n_layers", "n_heads", "n_kv_heads", "head_dim")


@st.fragment(key=LAB)
def laboratory() -> None:
    """Choices, dials and what follows them: a dial that is let go draws nothing else."""
    with st.container(border=True, key="costs_guess"):
        prediction()
    with st.container(border=True, key="costs_controls"):
        costs = controls(PAGE)
        show_dials(costs, DIALS, FIGURES)
    show_cards(costs, "cards", CARDS, FIGURES)
    show_block(costs, FIGURES)
    with st.container(key="costs_charts"):
        show_live_chart(costs, "kv_against_context", FIGURES, ("xaxis", "yaxis"))
        show_live_chart(costs, "kv_against_batch", FIGURES, ("xaxis", "yaxis"))
        show_live_chart(costs, "kv_kinds", FIGURES)
    with st.container(key="costs_texts"):
        with st.container(key="costs_texts_left"):
            findings(costs)
            wrong_table(costs.made)
            pages_of_tokens(costs)
        with st.container(key="costs_texts_right"):
            with st.container(border=True, key="costs_spot"):
                spot_the_wrong_number(costs.made)
            with st.container(border=True, key="costs_real"):
                allocate_for_real(costs)
            live_model()
    takeaway(costs.made)
    write_link(PAGE)
    show_what_was_clicked(costs.made)


st.html(CSS)
laboratory()
