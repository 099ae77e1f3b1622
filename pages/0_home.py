"""What this lab asks, what it shows, and what runs here."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.home.panel import show_live
from pages.shared.home.path import show_path
from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.time.machine import roofs_here
from pages.shared.waiting import smollm2_notice, still_loading

ASSETS = Path(__file__).resolve().parent.parent / "assets"
st.html(
    fill(
        '<div class="tbt-home"><p class="tbt-lead">{lead}</p><ul class="tbt-sources">'
        "<li><b>{chapter}</b>{chapter_text}</li><li><b>{exact}</b>{exact_text}</li><li><b>{measured}</b>{measured_text}</li></ul></div>",
        lead=t("home_lead"),
        chapter=t("home_chapter"),
        chapter_text=t("home_chapter_text"),
        exact=t("home_exact"),
        exact_text=t("home_exact_text"),
        measured=t("home_measured"),
        measured_text=t("home_measured_text"),
    )
)
st.html(ASSETS / "live.css")

left, right = st.columns([1.5, 1], gap="small")
with left:
    show_live()
with right.container(border=True, key="path", gap="xsmall"):
    show_path()
with left.container(border=True, key="runs_here", gap="xsmall"):
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("home_runs_here")))
    if still_loading():
        st.stop()
    # Only now: the models are there, and so is torch, which takes seconds to import.
    from pages.shared.facts import bandwidth_line, model_table
    from pages.shared.resources import shelf

    smollm2_notice()
    st.html(model_table(shelf().loaded))
    st.html(bandwidth_line(roofs_here()))
