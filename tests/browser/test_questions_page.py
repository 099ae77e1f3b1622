"""Page 7 in a browser: a question is answered by what runs, the list keeps it, nothing serious for axe."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from core.words import LANGUAGES, sentence
from tests.browser.costs import becomes
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.browser.visitor import PATIENCE_MS, Visitor

QUESTIONS = "/questions"
SHOWN = (".st-key-questions_list", ".st-key-questions_open")
LAST = (".st-key-questions_open .tbt-drawn svg", ".st-key-questions_list [data-testid=stDownloadButton]")
BEGIN = ".st-key-questions_run_queries"


def opened(visitor: Visitor, language: str, question: str, **dials: str) -> Visitor:
    words = urlencode({"lang": language, "q": question, **dials})
    visitor.page.goto(f"{visitor.address}{QUESTIONS}?{words}")
    visitor.page.wait_for_selector(f".st-key-questions_commit_{question} button", timeout=PATIENCE_MS)
    return visitor.at_rest()


def commit(visitor: Visitor, question: str) -> Visitor:
    visitor.page.locator(f".st-key-questions_commit_{question} button").click()
    return visitor.at_rest()


def answer_number(visitor: Visitor, question: str, value: str) -> Visitor:
    visitor.page.locator(f".st-key-questions_said_{question} input").fill(value)
    return commit(visitor, question)


def texts(visitor: Visitor) -> dict[str, str]:
    """What stands there, once what the browser draws last has come, and what began the run has gone."""
    for last in LAST:
        visitor.page.wait_for_selector(last, timeout=PATIENCE_MS)
    visitor.page.wait_for_selector(BEGIN, state="detached", timeout=PATIENCE_MS)
    visitor.at_rest()
    return {place: visitor.page.locator(place).inner_text() for place in SHOWN}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_reckoned_question_is_answered_and_kept(visit: Any, language: str) -> None:
    visitor = opened(visit(locale="zh-CN" if language == "zh" else "en-US"), language, "constant")
    commit(visitor, "constant")
    visitor.page.get_by_text(sentence("questions.say_first", language)).wait_for()
    answer_number(visitor, "constant", "1")
    done = sentence("questions.progress", language, done="1", total="25")
    visitor.page.get_by_text(done).wait_for(timeout=PATIENCE_MS)
    visitor.page.locator(".st-key-questions_next button").click()
    visitor.page.wait_for_function("!new URLSearchParams(location.search).get('q')?.includes('constant')")
    assert visitor.at_rest().page.get_by_text(done).count() == 1


def test_a_live_question_runs_the_model_and_a_refresh_keeps_it(visit: Any) -> None:
    visitor = opened(visit(), "en", "queries", n_new="4")
    visitor.page.locator(".st-key-questions_said_queries [role=radiogroup] label").first.click()
    commit(visitor, "queries").page.locator(f"{BEGIN} button").click()
    done = sentence("questions.progress", "en", done="1", total="25")
    visitor.page.get_by_text(done).wait_for(timeout=2 * PATIENCE_MS)
    shown = texts(visitor)
    beside = opened(visit(beside=visitor), "en", "constant")  # another tab: a visitor of its own
    visitor.page.reload()
    visitor.page.get_by_text(done).wait_for(timeout=PATIENCE_MS)
    becomes(visitor, lambda: texts(visitor), shown)
    assert "n_new=4" in visitor.page.url and visitor.page.get_by_test_id("stDownloadButton").count() == 1
    assert beside.page.get_by_text(sentence("questions.progress", "en", done="0", total="25")).count() == 1


@pytest.mark.parametrize("answered", [False, True], ids=["asked", "answered"])
def test_axe_finds_nothing_serious(visit: Any, answered: bool) -> None:
    question = "constant" if answered else "techniques"
    visitor = opened(visit(), "en", question)
    if answered:
        answer_number(visitor, question, "3")
    for _ in visitor.in_each_look():
        assert serious_by_width(visitor) == NOTHING
