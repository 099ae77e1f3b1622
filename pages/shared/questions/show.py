"""One question, from its settings to its reveal."""

from __future__ import annotations

import streamlit as st

from core.questions.question import Question
from core.questions.registry import QUESTIONS
from pages.shared.html import Html, fill
from pages.shared.language import t
from pages.shared.questions.ask import dials, prediction
from pages.shared.questions.experiment import measured
from pages.shared.questions.overview import name, next_button
from pages.shared.questions.progress import (
    Answered,
    Pledge,
    all_answered,
    answered_for,
    came_out,
    pledge_for,
    predict_again,
)
from pages.shared.questions.reveal import reveal, see_more
from pages.shared.questions.summary import summary
from pages.shared.questions.written import answer_words, asked


def show_question(key: str) -> None:
    """The question that is open."""
    question, pledge, answered = QUESTIONS[key], pledge_for(key), None
    st.html(fill('<h2 class="tbt-h2">{name}</h2>', name=name(key)))
    now = dials(question, None if pledge is None or question.live is None else pledge.given)
    given = now if pledge is None else pledge.given
    st.html(fill('<p class="tbt-question">{text}</p>', text=asked(question, given)))
    if pledge is None:
        prediction(question, given)
    else:
        st.html(_said(question, pledge))
        answered = answered_for(pledge) or _outcome(question, pledge)
        if answered is not None:
            reveal(question, answered, now)
    with st.container(key="questions_ways", horizontal=True):
        next_button(key)
        if pledge is not None:
            st.button(t("questions.again"), key=f"questions_again_{key}", on_click=predict_again, args=(key,))
        if answered is not None:
            see_more(question.link, now)


def _said(question: Question, pledge: Pledge) -> Html:
    said = answer_words(question, pledge.said)
    return fill('<p class="tbt-note">{text} <b>{said}</b></p>', text=t("questions.you_said"), said=said)


def _outcome(question: Question, pledge: Pledge) -> Answered | None:
    """Reckoned at once, or measured as soon as somebody presses the button."""
    if question.answer is not None:
        return came_out(pledge, question.answer(pledge.given))
    return measured(question, pledge)


def show_summary() -> None:
    """The file with everything that was answered, once there is something."""
    answered = all_answered()
    if answered:
        st.download_button(
            t("questions.summary"), summary(answered), "questions.html", "text/html", on_click="ignore", type="tertiary"
        )
