"""The settings of a question, and its prediction: once it is committed to, it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from core.questions.question import Amount, Answer, Choice, Curve, Dial, Given, Prediction, Question, Table
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.question_settings import dial_key
from pages.shared.questions.progress import Pledge, commit
from pages.shared.questions.written import base_value, name_of, unit_of
from pages.shared.trouble import notice

MOST_TYPED = 1e15
_INCOMPLETE = "questions_incomplete"


def dials(question: Question, held: Given | None) -> Given:
    """Draws what the learner may set, and returns the settings. What is `held` cannot be changed."""
    chosen: dict[str, Any] = {}
    with st.container(key="questions_dials"):
        for dial in question.dials:
            key = dial_key(question.key, dial.name)
            if held is not None:
                st.session_state[key] = getattr(held, dial.name)
            chosen[dial.name] = _widget(dial)(
                t(f"questions.dial_{dial.name}"),
                dial.choices,
                format_func=lambda value, name=dial.name: name_of(name, value),
                key=key,
                disabled=held is not None,
                persist_state="session",
            )
    return replace(question.given, **chosen)


def _widget(dial: Dial) -> Callable[..., Any]:
    """Numbers lie on a line; names stand in a list."""
    widgets: tuple[Any, Any] = st.selectbox, st.select_slider
    return widgets[isinstance(dial.choices[0], int)]  # type: ignore[no-any-return]


def prediction(question: Question, given: Given) -> None:
    """The form a prediction is typed or chosen in."""
    with st.form(f"questions_form_{question.key}", border=False):
        with st.container(key="questions_fields"):
            _fields(question, question.prediction, given)
        st.form_submit_button(
            t("questions.commit"),
            key=f"questions_commit_{question.key}",
            type="primary",
            on_click=_commit,
            args=(question, given),
        )
    if st.session_state.pop(_INCOMPLETE, None) == question.key:
        notice(t("questions.say_first"))


def _commit(question: Question, given: Given) -> None:
    said = _said(question)
    if said is None:
        st.session_state[_INCOMPLETE] = question.key
    else:
        commit(Pledge(question.key, given, said))


def _said(question: Question) -> Answer | None:
    """What the fields say; None while one of them is empty."""
    wanted = question.prediction
    values: list[Any] = [st.session_state.get(key) for key in _keys(question)]
    if None in values:
        return None
    match wanted:
        case Amount():
            return base_value(wanted, float(values[0]))
        case Choice():
            return str(values[0])
        case Curve():
            return tuple(float(value) for value in values)
        case Table():
            return tuple(str(value) for value in values)


def _keys(question: Question) -> list[str]:
    """Where the session keeps each field."""
    match question.prediction:
        case Curve():
            parts = [f"_{place}" for place in range(len(question.prediction.places(question.given)) - 1)]
        case Table():
            parts = [f"_{row}" for row in question.prediction.rows]
        case _:
            parts = [""]
    return [f"questions_said_{question.key}{part}" for part in parts]


def _fields(question: Question, wanted: Prediction, given: Given) -> None:
    keys = _keys(question)
    match wanted:
        case Amount():
            _number(t("questions.your_number", unit=unit_of(wanted)), keys[0])
        case Choice():
            _choice(st.radio, t("questions.your_choice"), question.key, wanted.options, keys[0])
        case Curve():
            first, *others = wanted.places(given)
            st.caption(t("questions.curve_first", n=count(first)))
            for n, key in zip(others, keys, strict=True):
                _number(t("questions.height_at", n=count(n)), key)
        case Table():
            for row, key in zip(wanted.rows, keys, strict=True):
                label = t(f"questions.{question.key}_row_{row}")
                _choice(_list, label, question.key, wanted.options, key)


def _number(label: str, key: str) -> None:
    st.number_input(label, 0.0, MOST_TYPED, None, format="%g", key=key, placeholder=t("questions.type_here"))


def _choice(draw: Callable[..., Any], label: str, name: str, options: tuple[str, ...], key: str) -> None:
    words = {option: t(f"questions.{name}_choice_{option}") for option in options}
    draw(label, options, index=None, format_func=words.__getitem__, key=key)


def _list(label: str, options: tuple[str, ...], **given: Any) -> None:
    # Without filter_mode the box would take typed text, and a phone would open its keyboard.
    st.selectbox(label, options, placeholder=t("questions.choose_here"), filter_mode=None, **given)
