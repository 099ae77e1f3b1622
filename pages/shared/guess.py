"""A prediction: the learner commits to an answer, and only then sees what core reckons. The page never waits for it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pages.shared.html import fill


def guess(question: str, choices: Mapping[int, str], key: str) -> int | None:
    """Asks, with what each choice is called; returns the one that was taken, None before."""
    return st.radio(
        question,
        list(choices),
        index=None,
        format_func=choices.__getitem__,
        key=key,
        horizontal=True,
        persist_state="session",
    )


def reveal(text: str) -> None:
    """The answer, below the question."""
    st.html(fill('<p class="tbt-notice tbt-info" role="status">{text}</p>', text=text))
