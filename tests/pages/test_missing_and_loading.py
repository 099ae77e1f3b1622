"""The pages while models load, and when smollm2 is not installed or nothing is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.refusal import Refusal
from core.words import LANGUAGES, sentence
from pages.shared import resources
from pages.shared.shelf import Shelf, load_by_name
from tests.engines import PATIENCE
from tests.pages.screen import enabled, ledger, press, text

OpenPage = Callable[..., AppTest]


@pytest.fixture
def with_loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[str], Any], list[str]], Shelf]]:
    """Puts a shelf of the test's own in the place of the process's."""
    shelves: list[Shelf] = []

    def use(load: Callable[[str], Any], extra: list[str]) -> Shelf:
        shelf = Shelf(load, lambda: extra)
        shelf.start()
        shelves.append(shelf)
        monkeypatch.setattr(resources, "_shelf", lambda: shelf)
        return shelf

    yield use
    for shelf in shelves:
        shelf.stop()


def without_smollm2(name: str) -> Any:
    if name == "smollm2":
        raise Refusal("engine.smollm2_missing")
    # Whatever model there is stands in for the tiny one.
    return load_by_name(name) if name == "tiny" else None


@pytest.mark.parametrize("language", LANGUAGES)
def test_while_models_load_the_pages_say_so(open_page: OpenPage, with_loader: Any, language: str) -> None:
    leave = threading.Event()

    def load(name: str) -> Any:
        assert leave.wait(PATIENCE)
        return load_by_name("tiny")

    shelf = with_loader(load, [])
    try:
        for page in ("0_home.py", "1_prefill_and_decode.py"):
            session = open_page(language, page)
            assert sentence("pages.loading", language, models="smollm2, tiny") in text(session)
            assert "prefill" not in enabled(session)
    finally:
        leave.set()
    shelf.wait_until_started()
    assert "prefill" in enabled(session.run())


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_smollm2_the_tiny_model_serves_and_the_page_says_why(
    open_page: OpenPage, with_loader: Any, language: str
) -> None:
    with_loader(without_smollm2, []).wait_until_started()
    session = open_page(language)
    for sentence_shown in (sentence("engine.smollm2_missing", language), sentence("pages.tiny_serves", language)):
        assert sentence_shown in text(session)
    assert session.selectbox(key="model").options == ["tiny"]
    assert len(ledger(press(session, "prefill"))) == 1


def test_an_operators_model_that_cannot_be_loaded_is_refused_by_name(open_page: OpenPage, with_loader: Any) -> None:
    def load(name: str) -> Any:
        if name == "mine.gguf":
            raise OSError("/secret/mine.gguf")
        return load_by_name("tiny")

    shelf = with_loader(load, ["mine.gguf"])
    shelf.wait_until_started()
    session = open_page("en")
    session.selectbox(key="model").set_value("mine.gguf").run()
    with pytest.raises(OSError):
        shelf.ask("mine.gguf").result(PATIENCE)
    session.run()
    assert sentence("pages.model_failed", "en", name="mine.gguf") in text(session) and "secret" not in text(session)
    assert not session.exception and "prefill" not in enabled(session)


def test_with_no_model_at_all_the_page_says_why(open_page: OpenPage, with_loader: Any) -> None:
    def load(name: str) -> Any:
        raise Refusal("engine.smollm2_missing")

    with_loader(load, []).wait_until_started()
    session = open_page("en")
    assert sentence("engine.smollm2_missing", "en") in text(session) and not session.exception
