"""Which of page 1's tools stands below the stage; none until the visitor asks for one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.settings import TOOLS
from pages.shared.stepping import current_visit
from pages.shared.tools import causality, keepsake, microscope, race, timeline
from pages.shared.visit import Visit

PANELS: dict[str, Callable[[Visit], None]] = {
    "microscope": microscope.show,
    "race": race.show,
    "causality": causality.show,
    "timeline": timeline.show,
    "keepsake": keepsake.show,
}


def show_tools(visit: Visit) -> None:
    """The row of tools and the one that was chosen."""
    with st.container(border=True, key="tools"):
        st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("tools.choose")))
        chosen = st.segmented_control(
            t("tools.choose"),
            TOOLS,
            format_func=lambda name: t(f"tools.name_{name}"),
            key="tool",
            persist_state="session",
            label_visibility="collapsed",
        )
        if chosen == "keepsake":  # what it opens stands on the stage: it is drawn with it
            keepsake.show(visit)
        elif chosen:
            _tool(str(chosen))


@st.fragment
def _tool(name: str) -> None:
    """A tool by itself: what is pressed in it does not draw the stage again."""
    PANELS[name](current_visit())
