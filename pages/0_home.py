"""What this lab asks, what it shows, and what runs here."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.home.panel import show_live
from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.time.machine import roofs_here
from pages.shared.waiting import smollm2_notice, still_loading

ASSETS = Path(__file__).resolve().parent.parent / "assets"
PATH = (
    ("1_prefill_and_decode.py", "prefill_and_decode", "play_circle"),
    ("2_kv_cache.py", "kv_cache", "memory"),
    ("3_memory_and_compute.py", "memory_and_compute", "stacked_line_chart"),
    ("4_where_the_time_goes.py", "where_the_time_goes", "roofing"),
    ("5_lab.py", "lab", "science"),
    ("6_which_term_does_it_change.py", "which_term_does_it_change", "tune"),
    ("7_questions.py", "questions", "quiz"),
    ("8_planner.py", "planner", "table_chart"),
)

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
with left.container(key="live_place"), st.container(key="live_room"):
    show_live()

with right.container(border=True, key="path", gap="xsmall"):
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("home_path")))
    for file, name, icon in PATH:
        st.page_link(file, label=t(f"heading_{name}"), icon=f":material/{icon}:")
        st.html(fill('<p class="tbt-note">{text}</p>', text=t(f"question_{name}")))

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
