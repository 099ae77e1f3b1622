"""Which models fit on which accelerators, how far, and how fast could they be at most?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.costs import show_chart
from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.link import write_link
from pages.shared.planner import planner_csv, planner_rows
from pages.shared.planner_controls import planner_controls
from pages.shared.planner_guess import guess
from pages.shared.planner_opened import open_a_figure
from pages.shared.planner_picture import picture_heading, planner_picture
from pages.shared.planner_table import plan_heading, planner_table, takeaway
from pages.shared.settings import PLANNER
from pages.shared.units import units

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@st.fragment(key="planner")
def planner() -> None:
    """Settings, a guess, the table, its picture, a figure to open, and what it all shows."""
    with st.container(border=True, key="plan_settings"):
        plan = planner_controls()
    write_link(PLANNER)
    with st.container(border=True, key="plan_prediction"):
        guess()
    rows = planner_rows(plan)
    if not rows:
        st.html(fill('<p class="tbt-notice tbt-info">{text}</p>', text=t("planner.nothing_asked")))
        return
    with st.container(border=True, key="plan_table", gap="small"):
        with st.container(horizontal=True, key="plan_table_head"):
            st.html(plan_heading(plan))
            csv = planner_csv(rows, plan)
            st.download_button(
                t("planner.download"), csv, "planner.csv", "text/csv", on_click="ignore", type="tertiary"
            )
        st.html(planner_table(rows, plan, units()))
    with st.container(border=True, key="plan_picture", gap="small"):
        st.html(picture_heading())
        show_chart(PLANNER, planner_picture(rows, units()))
    with st.container(border=True, key="plan_opening", gap="small"):
        open_a_figure(rows)
    st.html(takeaway(rows, plan))


for sheet in ("costs.css", "planner.css"):
    st.html(ASSETS / sheet)
planner()
