"""Why does decoding wait for memory while prefill waits for arithmetic, and how much of that can batching cure?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.costs import LAB, controls, show_dials
from pages.shared.link import write_link
from pages.shared.opened_estimate import show_what_was_clicked
from pages.shared.time import attention, batching, experts, flash, roofline, roofs, scores, step
from pages.shared.time.panel import FIGURES, settle_card

PAGE = "where_the_time_goes"
ASSETS = Path(__file__).resolve().parent.parent / "assets"
DIALS = ("batch", "context", "n_layers", "n_heads", "n_kv_heads", "head_dim")


@st.fragment(key=LAB)
def laboratory() -> None:
    """Choices, dials and what follows them: a dial that is let go draws nothing else."""
    settle_card()
    with st.container(border=True, key="costs_controls"):
        costs = controls(PAGE)
        show_dials(costs, DIALS, FIGURES)
    with st.container(key="time_columns"):
        with st.container(key="time_roofline"):
            roofline.show(costs)
        with st.container(key="time_step"):
            step.show(costs)
    with st.container(key="time_batching"):
        batching.show(costs)
    with st.container(key="time_more"):
        with st.container(key="time_attention"):
            attention.show(costs)
        with st.container(key="time_scores"):
            scores.show(costs)
    with st.container(key="time_experts"):
        experts.show(costs, FIGURES)
    write_link(PAGE)
    show_what_was_clicked(costs.made)


@st.fragment
def roofs_of_this_machine() -> None:
    """What it can do at most: measured on request, without drawing the rest again."""
    roofs.show()


for sheet in ("costs.css", "tools.css", "time.css"):
    st.html(ASSETS / sheet)
laboratory()
with st.container(key="time_flash_panel"):
    flash.show()
with st.container(key="time_roofs"):
    roofs_of_this_machine()
