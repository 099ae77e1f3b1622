"""Drawings as text: SVG, which `st.html` would take out, goes to the browser by way of a component of ours."""

from __future__ import annotations

import streamlit as st

from pages.shared.component import component
from pages.shared.html import Html


def show_drawn(key: str, drawing: Html, *, is_under_way: bool = False) -> None:
    """Shows a drawing; of something under way, the browser runs this fragment again after a moment."""
    counter = f"{key}_asked"
    st.session_state[counter] = st.session_state.get(counter, 0) + 1  # what is like the last is taken for no news
    data = {"html": str(drawing), "again": st.session_state[counter] if is_under_way else 0}
    component("tbt_drawn", "drawn")(key=key, data=data, on_again_change=lambda: None)
