"""The panel about experts, drawn on its own: what it says of the model, and that what it shows is what was run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import Future
from html import unescape
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.estimate import estimate
from core.estimate.query import asked
from core.estimate.weights import expected_distinct_experts, weight_bytes_read
from core.lab.routed_record import BATCHES, EXPERTS, N_BATCHES, ROUTERS, RoutedResult
from core.model.load import LanguageModel
from core.words import LANGUAGES, sentence
from pages.shared.numbers import count, milliseconds, scaled_bytes
from pages.shared.time import experts as module

Opened = Callable[..., AppTest]
MOE, DENSE = "qwen3-30b-a3b", "llama-3.1-8b"


def _panel() -> None:
    import streamlit as st

    from core.estimate.estimate import estimate
    from core.estimate.query import asked
    from pages.shared.costs import Costs
    from pages.shared.time.experts import show

    words = {"model": st.session_state["cost_model"], "batch": "8"}
    show(Costs(words, estimate(*asked(words))))


@pytest.fixture
def opened(tiny_f32: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The panel with the tiny model on the shelf, or with an empty shelf."""

    def open_it(language: str, model: str = MOE, *, usable: bool = True) -> AppTest:
        loaded: Future[LanguageModel] = Future()
        loaded.set_result(tiny_f32)
        shelf = SimpleNamespace(usable=["tiny"] if usable else [], ask=lambda name: loaded)
        monkeypatch.setattr(module, "shelf", lambda: shelf)
        session = AppTest.from_function(_panel, default_timeout=60)
        session.session_state["language"], session.session_state["cost_model"] = language, model
        session.run()
        assert not session.exception
        return session

    return open_it


def given(session: AppTest) -> list[dict[str, object]]:
    return [json.loads(component.proto.json) for component in session.get("bidi_component")]


def said(session: AppTest) -> str:
    bodies = [block.proto.body for block in session.get("html")]
    bodies += [str(data["html"]) for data in given(session) if "html" in data]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", "\n".join(bodies))))


def charts(session: AppTest) -> dict[str, dict[str, dict[str, object]]]:
    """The charts' traces by name."""
    drawn = [data for data in given(session) if data.get("kind") == "chart"]
    return {data["key"]: {trace["meta"]: trace for trace in data["figure"]["data"]} for data in drawn}  # type: ignore


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_dense_model_offers_one_with_experts(opened: Opened, language: str) -> None:
    session = opened(language, DENSE)
    assert charts(session) == {}
    session.button(key="cost_to_moe").click().run()
    assert session.session_state["cost_model"] == MOE and "experts_against_batch" in charts(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_resident_against_read(opened: Opened, language: str) -> None:
    shown = said(opened(language))
    made = estimate(*asked({"model": MOE, "batch": "8"}))
    one = int(weight_bytes_read(made.shape, made.request.weight_dtypes, 1))
    for n_bytes in (made.weight_bytes, made.decode.weights_read, one):
        assert scaled_bytes(n_bytes, "binary") in shown
    assert f"{128 * (1 - (1 - 8 / 128) ** 8):.1f}" in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guess_is_answered_by_the_formula(opened: Opened, language: str) -> None:
    session = opened(language)
    right = round(32 * (1 - (1 - 2 / 32) ** 16))
    assert module.answer() == right == 21
    session.radio(key="experts_guess").set_value(right).run()
    assert sentence("tools.guess_right", language, answer="21") in said(session)
    session.radio(key="experts_guess").set_value(32).run()
    assert sentence("tools.guess_wrong", language, answer="21") in said(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_a_model_it_says_so(opened: Opened, language: str) -> None:
    session = opened(language, usable=False)
    assert sentence("experts.no_model", language) in said(session)
    assert "experts_start" not in {button.key for button in session.button}


def test_what_is_shown_is_what_was_run(opened: Opened) -> None:
    session = opened("en")
    assert sentence("experts.none", "en") in said(session)
    session.button(key="experts_start").click().run()
    job = session.session_state["experts_job"]
    assert job.is_over(300) and job.refusal is None
    for language in LANGUAGES:
        session.session_state["language"] = language
        session.run()
        assert not session.exception
        check(session, job.result(), language)


def check(session: AppTest, result: RoutedResult, language: str) -> None:
    assert result.has_ended and result.model == "tiny" and result.experts == EXPERTS
    shown, drawn = said(session), charts(session)
    for router in ROUTERS:
        points = result.of(router)
        assert drawn["experts_distinct"][router]["x"] == list(BATCHES)
        assert drawn["experts_distinct"][router]["y"] == pytest.approx([p.mean_distinct for p in points], rel=1e-5)
        seconds = [1000 * point.median_seconds for point in points]
        assert drawn["experts_seconds"][router]["y"] == pytest.approx(seconds, rel=1e-5)
    formula = drawn["experts_distinct"]["formula"]
    expected = [float(expected_distinct_experts(EXPERTS, batch)) for batch in formula["x"]]  # type: ignore
    assert formula["y"] == pytest.approx(expected, rel=1e-5)
    uniform = drawn["experts_distinct"]["uniform"]
    for batch, y, over, under in zip(
        BATCHES,
        uniform["y"],  # type: ignore
        uniform["error_y"]["array"],  # type: ignore
        uniform["error_y"]["arrayminus"],  # type: ignore
        strict=True,
    ):
        interval = result.interval(batch)
        if interval.holds(y):
            assert (y - under, y + over) == pytest.approx(interval, abs=1e-3)
    most, uneven = result.same_work
    inside = sum(result.interval(batch).holds(result.at("uniform", batch).mean_distinct) for batch in BATCHES)
    values = {
        "inside": count(inside),
        "all": count(len(BATCHES)),
        "batches": count(N_BATCHES),
    }
    assert sentence("experts.inside", language, **values) in shown
    takeaway = sentence(
        "experts.takeaway",
        language,
        batch=count(most.batch),
        rows=count(2 * most.batch),
        uniform=f"{most.mean_distinct:.1f}",
        uniform_bytes=scaled_bytes(round(most.mean_bytes), "binary"),
        uniform_seconds=milliseconds(most.median_seconds),
        uneven=f"{uneven.mean_distinct:.1f}",
        uneven_bytes=scaled_bytes(round(uneven.mean_bytes), "binary"),
        uneven_seconds=milliseconds(uneven.median_seconds),
        experts="32",
        resident=scaled_bytes(32 * 3 * 128 * 128 * 4, "binary"),
    )
    assert takeaway in shown


def test_it_can_be_stopped(opened: Opened) -> None:
    session = opened("en")
    session.button(key="experts_start").click().run()
    job = session.session_state["experts_job"]
    session.button(key="experts_cancel").click().run()
    assert job.is_over(30) and not job.result().has_ended
    session.run()
    assert not session.exception and sentence("experts.none", "en") in said(session)
