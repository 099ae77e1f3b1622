"""The path through the pages, with what this visitor has done on each."""

from __future__ import annotations

import streamlit as st

from core.questions.registry import QUESTIONS
from pages.shared.html import fill
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.questions.progress import all_answered

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
_SEEN = "pages_seen"


def note_seen(name: str) -> None:
    """Remembers for this session that a page was opened."""
    st.session_state.setdefault(_SEEN, set()).add(name)


def show_path() -> None:
    """A link to each page, the question it answers, and what was done there."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("home_path")))
    for file, name, icon in PATH:
        st.page_link(file, label=t(f"heading_{name}"), icon=f":material/{icon}:")
        done = _done(name)
        st.html(
            fill(
                '<p class="tbt-note">{question}{done}</p>',
                question=t(f"question_{name}"),
                done=fill(' <b class="tbt-done">✓ {text}</b>', text=done) if done else "",
            )
        )


def _done(name: str) -> str:
    """What this visitor has done on a page; nothing where they have not been."""
    visit = st.session_state.get("visit")  # of page 1, whose class would bring torch
    n_answered = len(all_answered())
    if name == "prefill_and_decode" and visit is not None and visit.run_number:
        return t("home_runs", count=count(visit.run_number))
    if name == "questions" and n_answered:
        return t("questions.progress", done=count(n_answered), total=count(len(QUESTIONS)))
    return t("home_seen") if name in st.session_state.get(_SEEN, ()) else ""
