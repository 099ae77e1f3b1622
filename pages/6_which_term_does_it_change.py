"""Which term does a technique change, and which does it leave alone? A matrix by formula, an experiment for each."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.language import t
from pages.shared.link import fill_in_defaults, write_link
from pages.shared.settings import EXPERIMENTS, TECHNIQUES
from pages.shared.techniques.matrix import show_matrix
from pages.shared.techniques.panels import show_experiment

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@st.fragment(key="terms_fragment")
def experiment(name: str) -> None:
    """The technique that is open: what is pressed in it does not draw the matrix again."""
    show_experiment(name)
    write_link(TECHNIQUES)


for sheet in ("costs.css", "tools.css", "terms.css"):
    st.html(ASSETS / sheet)
fill_in_defaults(TECHNIQUES)
with st.container(border=True, key="terms_matrix"):
    show_matrix()
    st.segmented_control(
        t("terms.choose"),
        EXPERIMENTS,
        format_func=lambda name: t(f"terms.name_{name}"),
        key="technique",
        required=True,
        persist_state="session",
    )
with st.container(border=True, key="terms_experiment"):
    experiment(st.session_state["technique"])
