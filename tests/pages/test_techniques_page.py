"""Page 6: the matrix says what core reckons, a link opens a technique, a button leads to the page with more of it."""

from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.catalogue import shape as shape_named
from core.questions.technique_terms import TECHNIQUES, TERMS, Mark, changes
from core.words import LANGUAGES, sentence
from pages.shared.settings import EXPERIMENTS, terms_models
from pages.shared.techniques import matrix as module
from pages.shared.techniques.matrix import SIGNS, written_ratio
from pages.shared.techniques.reckoned import KNOWN
from tests.pages.screen import arrive, text

PAGE = "6_which_term_does_it_change.py"


def matrix(session: AppTest) -> list[list[str]]:
    """The rows of the matrix, each with its name and its cells as a reader sees them."""
    given = [json.loads(part.proto.json) for part in session.get("bidi_component")]
    (table,) = [data["html"] for data in given if 'class="tbt-term-' in str(data.get("html"))]
    rows = re.findall(r"<tr.*?</tr>", table.split("<tbody>")[1], flags=re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_every_mark_is_what_core_reckons(language: str, model: str) -> None:
    session = arrive(PAGE, language, technique="batching", model=model)
    shown = matrix(session)
    assert [row[0] for row in shown] == [sentence(f"terms.name_{name}", language) for name in TECHNIQUES]
    for name, row in zip(TECHNIQUES, shown, strict=True):
        found = changes(name, shape_named(model))
        assert list(found) == list(TERMS)
        for cell, change in zip(row[1:], found.values(), strict=True):
            ratio = written_ratio(change.ratio) if change.mark in (Mark.DOWN, Mark.UP) else ""
            assert cell == f"{SIGNS[change.mark]} {ratio}{sentence(f'terms.mark_{change.mark}', language)}"


def test_a_click_on_a_mark_opens_its_technique(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"technique": "sampling"}
    monkeypatch.setattr(module.st, "session_state", state)
    for sent, technique in (
        ("heads", "heads"),
        ("../x", "heads"),
        (None, "heads"),
        ({}, "heads"),
        ("prefix", "prefix"),
    ):
        module.opened(sent)
        assert state["technique"] == technique


def test_another_model_gives_another_matrix() -> None:
    session = arrive(PAGE, "en", technique="chunks")
    before = matrix(session)
    session.selectbox(key="terms_model").set_value("qwen3-30b-a3b").run()
    assert not session.exception and matrix(session) != before
    assert session.query_params["model"] in ("qwen3-30b-a3b", ["qwen3-30b-a3b"])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", list(KNOWN))
def test_what_is_reckoned_beneath_leads_further(language: str, name: str) -> None:
    session = arrive(PAGE, language, technique=name, model="qwen3-8b")
    change = changes(name, shape_named("qwen3-8b"))[KNOWN[name].guessed]
    right = (Mark.DOWN, Mark.SAME, Mark.UP).index(change.mark)
    answer = sentence(f"terms.guess_{change.mark}", language)
    session.radio(key=f"terms_guess_{name}").set_value(right).run()
    assert sentence("tools.guess_right", language, answer=answer) in text(session)
    session.radio(key=f"terms_guess_{name}").set_value((right + 1) % 3).run()
    assert sentence("tools.guess_wrong", language, answer=answer) in text(session)
    session.button(key=f"terms_see_{name}").click().run()
    assert not session.exception
    if name == "experts":
        assert session.session_state["cost_model"] == "mixtral-8x7b-v0.1"


def test_every_technique_of_the_matrix_has_an_experiment() -> None:
    assert set(TECHNIQUES) < set(EXPERIMENTS) and "llama-3.1-8b" in terms_models()


def test_a_ratio_is_never_rounded_to_one() -> None:
    assert [written_ratio(ratio) for ratio in (0.25, 1.0001, 0.9996, 40, 4.0)] == [
        "0.25×", "1.0001×", "0.9996×", "40×", "4.00×",
    ]  # fmt: skip
