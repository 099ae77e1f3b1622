"""What do you think comes out? The chapter's questions and what people get wrong, each answered by an experiment."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.link import fill_in_defaults, write_link
from pages.shared.questions.overview import overview
from pages.shared.questions.show import show_question, show_summary
from pages.shared.questions.tab import keep_progress
from pages.shared.settings import QUESTIONS

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@st.fragment(key="questions")
def questions() -> None:
    """The list with what was answered, and beside it the question that is open."""
    fill_in_defaults(QUESTIONS)
    with st.container(key="questions_page"):
        with st.container(border=True, key="questions_list"):
            place = st.container(key="questions_overview")
        with st.container(border=True, key="questions_open", gap="small"):
            show_question(st.session_state["question"])
        with place:  # drawn last: it counts what has just been answered
            overview()
            show_summary()
    keep_progress()
    write_link(QUESTIONS)


for sheet in ("tools.css", "questions.css"):
    st.html(ASSETS / sheet)
questions()
