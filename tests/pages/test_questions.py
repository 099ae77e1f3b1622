"""Page 7 in both languages: committed to, revealed, kept, saved. Answers are core's."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.questions.judge import Verdict
from core.questions.question import Amount, Choice, Curve, Outcome, Question, Table
from core.questions.registry import CHAPTER, QUESTIONS
from core.words import LANGUAGES, catalogue, sentence
from pages.shared.questions.progress import Answered, Pledge
from pages.shared.questions.reveal import remarks
from tests.pages.screen import arrive

PAGE = "7_questions.py"
RECKONED = [key for key, question in QUESTIONS.items() if question.answer is not None]
MEASURED = [key for key in QUESTIONS if key not in RECKONED]
LINES = {"training": ("before", "after"), "queries": ("queries", "keys")}
CASES = {"batch": ("compute",), "int4": ("compute",), "ranks": ("even", "uneven"), "slower": ("beyond",)}
"""What makes the sentence of why another one."""


def said(session: AppTest) -> str:
    """All that a reader sees, drawings included."""
    bodies = [block.proto.body for block in session.get("html")]
    bodies += [json.loads(component.proto.json).get("html", "") for component in session.get("bidi_component")]
    return flat(unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", "\n".join(bodies), flags=re.DOTALL)))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def predict(session: AppTest, question: Question, value: Any = None) -> AppTest:
    """Fills every field of the form, and commits."""
    key = f"questions_said_{question.key}"
    match question.prediction:
        case Amount():
            session.number_input(key=key).set_value(2.0 if value is None else value)
        case Choice(options):
            session.radio(key=key).set_value(value or options[0])
        case Curve():
            for place in range(3):
                session.number_input(key=f"{key}_{place}").set_value(1.5)
        case Table(rows, options):
            for row, one in zip(rows, value or [options[0]] * len(rows), strict=True):
                session.selectbox(key=f"{key}_{row}").set_value(one)
    session.button(key=f"questions_commit_{question.key}").click().run()
    assert not session.exception
    return session


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_opens_a_question(language: str) -> None:
    session = arrive(PAGE, language, q="batch")
    shown = said(session)
    assert sentence("questions.batch_title", language) in shown
    assert flat(sentence("questions.progress", language, done="0", total=str(len(QUESTIONS)))) in shown
    radio = session.radio(key="question")
    assert radio.value == "batch" and len(radio.options) == len(QUESTIONS)
    assert radio.options[0].startswith("Q1 · ")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("key", RECKONED)
def test_a_prediction_is_revealed(language: str, key: str) -> None:
    question = QUESTIONS[key]
    session = arrive(PAGE, language, q=key)
    assert 'class="tbt-takeaway"' not in "".join(block.proto.body for block in session.get("html"))
    predict(session, question)
    assert question.answer is not None
    outcome = question.answer(question.given)
    answered = session.session_state["questions_answered"][key]
    assert answered.outcome == outcome
    assert sentence(f"questions.verdict_{answered.verdict}", language) in said(session)
    assert 'class="tbt-takeaway"' in "".join(block.proto.body for block in session.get("html"))
    assert session.radio(key="question").value == key
    if isinstance(question.prediction, Amount):
        assert f'data-chart="question-{key}"' in drawings(session)


def drawings(session: AppTest) -> str:
    return "".join(json.loads(component.proto.json).get("html", "") for component in session.get("bidi_component"))


def test_nothing_is_revealed_before_every_field_is_filled() -> None:
    session = arrive(PAGE, "en", q="techniques")
    session.selectbox(key="questions_said_techniques_weights").set_value("weights")
    session.button(key="questions_commit_techniques").click().run()
    assert sentence("questions.say_first", "en") in said(session)
    assert not session.session_state["questions_pledges"]


def test_bytes_are_typed_in_the_visitors_unit() -> None:
    """93.4 GB is right; with GiB it is 87."""
    for units, typed in (("decimal", 93.4), ("binary", 87.0)):
        session = predict(arrive(PAGE, "en", q="experts", units=units), QUESTIONS["experts"], typed)
        answered = session.session_state["questions_answered"]["experts"]
        assert answered.verdict is Verdict.CLOSE and answered.pledge.said == pytest.approx(93.4e9, rel=1e-3)


def test_the_learners_settings_count() -> None:
    session = arrive(PAGE, "en", q="query_heads")
    session.selectbox(key="questions_query_heads_model").set_value("qwen3-0.6b").run()
    predict(session, QUESTIONS["query_heads"], 112.0)
    answered = session.session_state["questions_answered"]["query_heads"]
    assert answered.outcome.answer == 2 * 28 * 8 * 128 * 2 and answered.verdict is Verdict.CLOSE
    session.selectbox(key="questions_query_heads_model").set_value("llama-3.1-8b").run()
    assert flat(sentence("questions.now", "en", value="128.0 KiB")) in said(session)
    assert session.session_state["questions_answered"]["query_heads"] is answered


def test_what_was_answered_stays_and_can_be_asked_again() -> None:
    session = predict(arrive(PAGE, "en", q="kilo"), QUESTIONS["kilo"], "thousand")
    session.switch_page("8_planner.py").run()
    session.switch_page(PAGE).run()
    shown = said(session)
    assert flat(sentence("questions.progress", "en", done="1", total=str(len(QUESTIONS)))) in shown
    assert "3,072" in shown and session.radio(key="question").value == "kilo"
    session.button(key="questions_again_kilo").click().run()
    assert "3,072" not in said(session)
    predict(session, QUESTIONS["kilo"], "binary")
    assert session.session_state["questions_answered"]["kilo"].verdict is Verdict.CLOSE


def test_the_next_question_opens_and_the_last_leads_to_the_first() -> None:
    keys = list(QUESTIONS)
    session = arrive(PAGE, "en", q=keys[-2])
    for key in (keys[-1], keys[0]):
        session.button(key="questions_next").click().run()
        assert session.session_state["question"] == key and session.radio(key="question").value == key


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_summary_holds_all_of_it(language: str) -> None:
    session = arrive(PAGE, language, q="kilo")
    assert not session.get("download_button")
    predict(session, QUESTIONS["kilo"], "binary")
    session.radio(key="question").set_value("ranks").run()
    predict(session, QUESTIONS["ranks"], 6.25)
    assert len(session.get("download_button")) == 1
    page = summary_of(session)
    assert "<svg" in page and "http:" not in page and "https:" not in page and "<script" not in page
    for key in ("kilo", "ranks"):
        assert sentence(f"questions.{key}_title", language) in unescape(page)
    assert "131,072" in page and "12.5%" in page and "default-src" in page


def summary_of(session: AppTest) -> str:
    """The file that this session would download."""
    from streamlit.testing.v1 import AppTest as Session

    def write() -> None:
        import streamlit as st

        from pages.shared.questions.summary import summary

        st.session_state["written"] = summary(st.session_state["questions_answered"])

    alone = Session.from_function(write)
    for name in ("questions_answered", "language"):
        alone.session_state[name] = session.session_state[name]
    alone.run()
    assert not alone.exception
    return str(alone.session_state["written"].decode())


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("key", MEASURED)
def test_an_experiment_runs_on_the_live_model(language: str, key: str) -> None:
    question = QUESTIONS[key]
    session = arrive(PAGE, language, q=key)
    session.selectbox(key=f"questions_{key}_live").set_value("tiny").run()
    for dial in question.dials:
        if dial.name in ("n", "n_new"):
            session.select_slider(key=f"questions_{key}_{dial.name}").set_value(dial.choices[0]).run()
    predict(session, question)
    assert "questions_answered" not in session.session_state
    session.button(key=f"questions_run_{key}").click().run()
    for _ in range(300):
        if "questions_answered" in session.session_state:
            break
        session.run()
    assert not session.exception
    answered = session.session_state["questions_answered"][key]
    assert answered.pledge.given.live == "tiny"
    assert sentence(f"questions.verdict_{answered.verdict}", language) in said(session)


def test_seconds_that_waver_are_said_to() -> None:
    """Counts and bytes do not: whatever else runs meanwhile, they are the same."""
    for key, said_so in (("slower", True), ("past", False)):
        outcome = Outcome(answer=1.0, n_disturbed=3)
        found = remarks(QUESTIONS[key], Answered(Pledge(key, QUESTIONS[key].given, 1.0), outcome))
        assert bool(found) == said_so and all("3" in each for each in found)
        assert remarks(QUESTIONS[key], Answered(Pledge(key, QUESTIONS[key].given, 1.0), Outcome(answer=1.0))) == []


def test_what_the_model_cannot_do_is_a_sentence() -> None:
    session = arrive(PAGE, "en", q="slower")
    session.selectbox(key="questions_slower_live").set_value("tiny").run()
    predict(session, QUESTIONS["slower"])
    session.button(key="questions_run_slower").click().run()
    assert not session.exception and "1,024" in said(session) and "questions_answered" not in session.session_state


def test_the_way_on_takes_the_settings_along() -> None:
    session = arrive(PAGE, "en", q="quarter")
    session.selectbox(key="questions_quarter_kv_dtype").set_value("q8_0").run()
    predict(session, QUESTIONS["quarter"], "more")
    session.button(key="questions_more").click().run()
    assert not session.exception
    state = session.session_state
    assert (state["cost_model"], state["cost_context"], state["cost_kv_dtype"]) == ("llama-3.1-8b", 32_768, "q8_0")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_reason_is_that_of_what_came_out(language: str) -> None:
    session = arrive(PAGE, language, q="batch", card="m2-ultra", n="1024", batch="64")
    shown = said(predict(session, QUESTIONS["batch"]))
    compute, memory = (
        catalogue(language)[f"questions.{name}"].split("{")[0] for name in ("batch_why_compute", "batch_why")
    )
    assert compute in shown and memory not in shown
    limit = sentence("questions.beyond_limit", language, model="GPT-2 (124M)", limit="1,024", n="131,072")
    assert flat(limit) in said(predict(arrive(PAGE, language, q="constant", model="gpt2"), QUESTIONS["constant"]))
    assert flat(limit) not in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_words_are_left_over(language: str) -> None:
    """Each key belongs to a question's prediction, a dial, or is named in the code."""
    wanted = set()
    for key, question in QUESTIONS.items():
        wanted |= {f"{key}_{part}" for part in ("title", "ask", "why", *(f"why_{case}" for case in CASES.get(key, ())))}
        wanted |= {f"dial_{dial.name}" for dial in question.dials}
        if key in ("training", "queries"):  # they draw lines
            wanted |= {f"{key}_{part}" for part in ("lines", "x", "y")}
            wanted |= {f"{key}_line_{name}" for name in LINES[key]}
        match question.prediction:
            case Choice(options):
                wanted |= {f"{key}_choice_{option}" for option in options}
            case Table(rows, options):
                wanted |= {f"{key}_choice_{option}" for option in options} | {f"{key}_row_{row}" for row in rows}
            case Amount() if f"questions.{key}_believed" in catalogue(language):
                wanted.add(f"{key}_believed")
    found = {key.removeprefix("questions.") for key in catalogue(language) if key.startswith("questions.")}
    prefixes = tuple(f"{key}_" for key in QUESTIONS)
    assert wanted <= found
    assert {key for key in found - wanted if key.startswith((*prefixes, "dial_"))} == set()
    assert [question.key for question in CHAPTER] == list(QUESTIONS)[: len(CHAPTER)]
