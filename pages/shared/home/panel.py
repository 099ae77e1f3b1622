"""The live run on the home page."""

from __future__ import annotations

import streamlit as st

from pages.shared.component import component
from pages.shared.language import language
from pages.shared.resources import shelf
from pages.shared.units import units

KEY = "live"


def show_live() -> None:
    """Draws the run that is under way, for as long as the visitor looks at it. Without any model there is none."""
    if not (shelf().loading or shelf().usable):
        return
    # A place that knows its width, and in it the room that the run will take.
    with st.container(key="live_place"), st.container(key="live_room"):
        component("tbt_live", KEY)(key=KEY, data={"language": language(), "units": units()})
