"""Home and the frame in both languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.weights import parameters
from core.lab.roofs.kept import keep
from core.questions.registry import QUESTIONS
from core.words import LANGUAGES, catalogue, sentence
from pages.shared.resources import shelf
from tests.pages.screen import html, text
from tests.roofs import roofs_here

OpenPage = Callable[..., AppTest]


@pytest.mark.parametrize("language", LANGUAGES)
def test_home_says_what_runs_here(open_page: OpenPage, language: str) -> None:
    session = open_page(language, "0_home.py")
    shown = text(session)
    assert sentence("pages.question_home", language) in shown
    for model in shelf().loaded:
        assert model.name in shown and f"{parameters(model.shape).total:,}" in shown
    assert session.query_params["lang"] in (language, [language])
    assert f"documentElement.lang = '{'zh-CN' if language == 'zh' else 'en'}'" in html(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_home_says_how_fast_memory_is_read(
    open_page: OpenPage, language: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TBT_CACHE", str(tmp_path))
    assert sentence("pages.home_bandwidth_none", language) in text(open_page(language, "0_home.py"))
    assert keep(roofs_here())
    said = sentence("pages.home_bandwidth", language, rate="20.0 GB/s", date=roofs_here().measured_at[:10])
    assert said in text(open_page(language, "0_home.py"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_path_says_what_was_done(open_page: OpenPage, language: str) -> None:
    """This session's own: where it has been, how many runs it made, how many questions it answered."""
    session = open_page(language, "0_home.py")
    done = [sentence("pages.home_seen", language), sentence("pages.home_runs", language, count="1")]
    assert not [words for words in done if f"✓ {words}" in text(session)]
    session.switch_page("2_kv_cache.py").run()
    session.switch_page("1_prefill_and_decode.py").run()
    session.session_state["visit"].run_number = 1
    session.session_state["questions_answered"] = {next(iter(QUESTIONS)): None}
    session.switch_page("0_home.py").run()
    assert not session.exception
    shown = text(session)
    answered = sentence("questions.progress", language, done="1", total=str(len(QUESTIONS)))
    assert [shown.count(f"✓ {words}") for words in (*done, answered)] == [1, 1, 1]
    assert "✓" not in text(open_page(language, "0_home.py"))  # another visitor's


def test_a_wrong_language_in_the_link_falls_back(open_page: OpenPage) -> None:
    session = open_page("<b>", "0_home.py")
    assert session.session_state["language"] in LANGUAGES


def test_no_sentence_of_ours_could_become_a_formula() -> None:
    for language in LANGUAGES:
        for key, words in catalogue(language).items():
            assert "$" not in words, key


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    import string

    zh, en = (catalogue(language) for language in LANGUAGES)
    assert zh.keys() == en.keys()
    for key in zh:
        fields = [{field for _, field, _, _ in string.Formatter().parse(words[key]) if field} for words in (zh, en)]
        assert fields[0] == fields[1], key
