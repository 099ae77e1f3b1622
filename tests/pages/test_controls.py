"""The settings of a run: what the widgets say is what the engine is asked for."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.model.text.chat_template import Message
from core.words import LANGUAGES, sentence
from pages.shared.controls import Controls
from pages.shared.conversation import CHARACTERS_SHOWN, MESSAGES_SHOWN
from pages.shared.prompts import default_prompt, examples
from pages.shared.resources import shelf
from pages.shared.visit import Visit
from tests.pages.screen import html

HOSTILE = "$5 a_b **c** <b>x</b> <script>alert(1)</script> :red[y] `z`"


def only_the_controls() -> None:
    import streamlit as st

    from pages.shared.controls import controls

    st.session_state["asked"] = controls(st.session_state["visit"])


def opened(language: str, *turns: Message, **values: Any) -> AppTest:
    session = AppTest.from_function(only_the_controls, default_timeout=60)
    session.session_state["language"] = language
    session.session_state["visit"] = Visit()
    session.session_state["visit"].turns = turns
    for key, value in values.items():
        session.session_state[key] = value
    session.run()
    assert not session.exception
    return session


def asked(session: AppTest) -> Controls:
    assert not session.exception
    controls: Controls = session.session_state["asked"]
    return controls


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_widgets_say_is_what_is_asked_for(language: str) -> None:
    session = opened(language)
    first = asked(session)
    assert first.config.use_cache and first.config.sampling.is_greedy and first.config.max_new == 64
    assert first.config.record.kv_norms and first.config.record.candidates == 8 and first.problem is None
    session.number_input(key="temperature").set_value(0.7)
    session.number_input(key="top_k").set_value(40)
    session.number_input(key="top_p").set_value(0.9)
    session.number_input(key="seed").set_value(7)
    session.number_input(key="max_new").set_value(5)
    session.toggle(key="use_cache").set_value(False)
    session.text_area(key="prompt").set_value(HOSTILE).run()
    now = asked(session)
    sampling = now.config.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.7, 40, 0.9, 7)
    assert now.prompt == HOSTILE and now.config.max_new == 5 and not now.config.use_cache


def test_limits_do_not_follow_other_settings() -> None:
    """C04: the limits are constants, so no other setting can push a value about."""
    session = opened("en")
    session.number_input(key="max_new").set_value(1024)
    session.number_input(key="seed").set_value(77).run()
    for model in reversed(shelf().choices):
        session.selectbox(key="model").set_value(model).run()
        field = session.number_input(key="max_new")
        assert (field.min, field.max, field.value) == (1, 1024, 1024)
        assert session.number_input(key="seed").value == 77 and asked(session).config.max_new == 1024


def test_an_untouched_default_prompt_follows_model_and_language() -> None:
    session = opened("en", model="tiny")
    assert asked(session).prompt == default_prompt("tiny", "en")
    session.session_state["language"] = "zh"
    assert asked(session.run()).prompt == default_prompt("tiny", "zh")
    for model in shelf().choices:
        session.selectbox(key="model").set_value(model).run()
        assert asked(session).prompt == default_prompt(model, "zh")
    session.text_area(key="prompt").set_value("mine").run()
    for model in shelf().choices:
        session.selectbox(key="model").set_value(model).run()
    session.session_state["language"] = "en"
    assert asked(session.run()).prompt == "mine"


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_fills_the_prompt(language: str) -> None:
    session = opened(language, model="tiny")
    offered = examples("tiny", language)
    assert len(offered) == 4
    for example in (*reversed(offered), offered[2]):
        session.pills(key="example").set_value(example).run()
        assert asked(session).prompt == example == session.text_area(key="prompt").value
    # A prompt of the visitor's own is none of the examples; another press on the chosen one changes nothing.
    session.text_area(key="prompt").set_value("mine").run()
    assert session.pills(key="example").value is None and asked(session).prompt == "mine"


def test_there_are_four_examples_for_every_model_and_language() -> None:
    for model in ("smollm2", "tiny", "an-operators-model"):
        for language in LANGUAGES:
            assert len(set(examples(model, language))) == 4
    assert examples("smollm2", "zh") == examples("smollm2", "en")  # it speaks English only


def test_a_model_that_is_gone_gives_way_to_one_that_is_there() -> None:
    assert asked(opened("en", model="gone")).name == shelf().choices[0]


def test_a_huge_prompt_and_an_empty_one_are_taken_as_they_are() -> None:
    session = opened("en")
    for prompt in ("字" * 100_000, "", " ", "\n", "a\x00b"):
        session.text_area(key="prompt").set_value(prompt).run()
        assert asked(session).prompt == prompt


TURNS = (Message("user", HOSTILE), Message("assistant", "x" * 10_000))


@pytest.mark.parametrize("language", LANGUAGES)
def test_in_chat_the_system_prompt_and_the_turns_stand_before_the_prompt(chat_model: str, language: str) -> None:
    session = opened(language, *TURNS, model=chat_model)
    assert asked(session).in_chat and asked(session).history == TURNS and asked(session).system_prompt == ""
    session.text_area(key="system_prompt").set_value(HOSTILE).run()
    assert asked(session).history == (Message("system", HOSTILE), *TURNS) and asked(session).system_prompt == HOSTILE
    session.text_area(key="system_prompt").set_value(" \n").run()
    assert asked(session).history == TURNS
    session.toggle(key="chat_template").set_value(False).run()
    assert not asked(session).in_chat and asked(session).history == () and asked(session).system_prompt == ""
    assert not [area for area in session.text_area if area.key == "system_prompt"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_conversation_is_shown_as_text_and_can_be_forgotten(chat_model: str, language: str) -> None:
    session = opened(language, *TURNS, model=chat_model)
    shown = html(session)
    assert HOSTILE in unescape(shown) and "<b>x" not in shown and "<script" not in shown
    assert "x" * CHARACTERS_SHOWN + "…" in shown and "x" * (CHARACTERS_SHOWN + 1) not in shown
    session.button(key="forget_turns").click().run()
    assert asked(session).history == () and session.session_state["visit"].turns == ()
    assert sentence("settings.no_turns", language) in html(session) and not session.button


def test_of_a_long_conversation_the_newest_messages_are_shown(chat_model: str) -> None:
    session = opened("en", *(Message("user", f"<{number}>") for number in range(MESSAGES_SHOWN + 3)), model=chat_model)
    assert "&lt;2&gt;" not in html(session) and "&lt;3&gt;" in html(session)
    assert sentence("settings.older_messages", "en", count=3) in html(session)
    assert len(asked(session).history) == MESSAGES_SHOWN + 3


def test_a_model_without_a_template_is_given_the_bare_prompt() -> None:
    session = opened("en", *TURNS, model="tiny", system_prompt="Be brief.")
    assert session.toggle(key="chat_template").disabled
    assert not asked(session).in_chat and asked(session).history == () and asked(session).system_prompt == ""
