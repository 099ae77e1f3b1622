"""Drawings as text: SVG, which `st.html` would take out, goes to the browser by way of a component of ours."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.component import component
from pages.shared.html import Html


def show_drawn(
    key: str, drawing: Html, *, is_under_way: bool = False, on_chosen: Callable[[object], None] | None = None
) -> None:
    """Shows a drawing; of something under way, the browser runs this fragment again after a moment.

    `on_chosen` hears what a button in it names that was clicked: unchecked, from a browser.
    """
    counter = f"{key}_asked"
    st.session_state[counter] = st.session_state.get(counter, 0) + 1  # what is like the last is taken for no news
    data = {"html": str(drawing), "again": st.session_state[counter] if is_under_way else 0}

    def chosen() -> None:
        if on_chosen is not None:
            on_chosen((st.session_state.get(key) or {}).get("chosen"))

    component("tbt_drawn", "drawn")(key=key, data=data, on_again_change=lambda: None, on_chosen_change=chosen)
