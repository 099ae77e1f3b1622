"""The list of questions with what has been answered, and the way from one to the next."""

from __future__ import annotations

import streamlit as st

from core.questions.judge import Verdict
from core.questions.registry import CHAPTER, QUESTIONS
from pages.shared.html import fill, join
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.questions.progress import SIGNS, all_answered, sign_of

KEYS = tuple(QUESTIONS)
_OF_THE_CHAPTER = tuple(question.key for question in CHAPTER)


def overview() -> str:
    """Draws how things stand and the list; returns the question that is open."""
    found = [answered.verdict for answered in all_answered().values()]
    tally = join(
        fill("<span>{sign} {text} <b>{count}</b></span>", sign=SIGNS[verdict], text=t(f"questions.{verdict}"), count=n)
        for verdict, n in ((verdict, found.count(verdict)) for verdict in Verdict)
    )
    st.html(
        fill(
            '<p class="tbt-note">{said}</p><p class="tbt-note tbt-tally">{tally}</p>',
            said=t("questions.progress", done=count(len(found)), total=count(len(KEYS))),
            tally=tally,
        )
    )
    labels = {key: f"{sign_of(key)} {name(key)}".strip() for key in KEYS}
    # The browser keeps an option by its label, and a label changes when its question is answered.
    st.session_state["question"] = st.session_state["question"]
    return str(
        st.radio(
            t("questions.list"),
            KEYS,
            format_func=labels.__getitem__,
            key="question",
            persist_state="session",
            label_visibility="collapsed",
        )
    )


def name(key: str) -> str:
    """What a question is called in the list: the chapter's by number, a misconception by its words."""
    title = t(f"questions.{key}_title")
    return f"Q{_OF_THE_CHAPTER.index(key) + 1} · {title}" if key in _OF_THE_CHAPTER else title


def next_button(key: str) -> None:
    """To the question behind this one; behind the last one comes the first."""
    st.button(
        t("questions.next"), key="questions_next", on_click=_open, args=(KEYS[(KEYS.index(key) + 1) % len(KEYS)],)
    )


def _open(key: str) -> None:
    st.session_state["question"] = key
