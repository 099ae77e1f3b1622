"""Every figure of a run opens: with the record's own value, words in both languages, and code that is there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.run import Run
from core.engine.steps import generate
from core.engine.trace import Phase, StepEvent, Trace
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.derivation import Derivation
from core.estimate.derivations import derivations
from core.estimate.dtypes import kv_dtypes
from core.estimate.estimate import Request, estimate
from core.estimate.flops import attended_pairs_derivation
from core.estimate.shape import FeedForward
from core.estimate.where import where_derivations
from core.model.load import LanguageModel
from core.words import LANGUAGES, catalogue, sentence
from pages.shared import source_code
from pages.shared.chances import DRAWN, MODEL
from pages.shared.derivations import FIGURES, OpenedFigure, derivation_of, is_figure
from pages.shared.source_code import sources
from tests.pages import screen
from tests.runs import new_run

ROOT = Path(__file__).resolve().parents[2]
WAITING = 0.0123
DIALOGS = ("opened", "opened_parts", "opened_estimate", "chances")
PROMPT = list(range(5, 75))  # more than one block of the cache
CJK = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
RUNS: dict[str, dict[str, Any]] = {
    "cache": {},
    "chunks": {"prefill_chunk": 32},
    "no cache": {"use_cache": False},
    "no cache, chunks": {"use_cache": False, "prefill_chunk": 48},
}


def started(run: Run) -> Any:
    return SimpleNamespace(model=run.model, config=run.config)


@pytest.fixture(scope="module")
def runs(tiny_f32: LanguageModel) -> dict[str, Run]:
    made = {name: new_run(tiny_f32, PROMPT, max_new=4, **settings) for name, settings in RUNS.items()}
    for run in made.values():
        run.tokenising_seconds = 0.004
        list(generate(run.model, run))
    return made


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


def opened(run: Run, figure: str, step: int, trace: Trace | None = None) -> OpenedFigure:
    return derivation_of(figure, started(run), trace or run.trace, step, waiting_seconds=WAITING)


RECORD: dict[str, Callable[[Trace, StepEvent], Any]] = {
    "flops_chapter": lambda trace, event: event.flops_chapter,
    "flops_exact": lambda trace, event: event.flops_exact,
    "kv_formula": lambda trace, event: event.kv_bytes_formula,
    "kv_tensors": lambda trace, event: event.kv_bytes,
    "kv_reserved": lambda trace, event: event.kv_reserved_bytes,
    "bytes_read": lambda trace, event: event.bytes_read,
    "step_time": lambda trace, event: event.total_seconds,
    "ttft": lambda trace, event: WAITING + trace.time_to_first_token_s,  # type: ignore[operator]
    "tpot": lambda trace, event: trace.time_per_output_token_s,
    "attended_pairs": lambda trace, event: event.attended_pairs,
}


def test_these_are_the_figures() -> None:
    assert FIGURES.keys() == RECORD.keys()


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_the_records_and_its_derivation_comes_to_it(run: Run, figure: str) -> None:
    """In every phase; whole numbers to the last one, times but for the last bits of their sums."""
    trace = run.trace
    for step, event in enumerate(trace.steps):
        shown = opened(run, figure, step)
        assert shown.name == figure and shown.value == RECORD[figure](trace, event) is not None
        if isinstance(shown.value, int):
            assert shown.derivation.value == shown.value
        else:
            assert shown.derivation.value == pytest.approx(shown.value, rel=1e-12) and shown.derivation.unit == "s"


def test_the_phases_are_all_here(runs: dict[str, Run]) -> None:
    assert {event.phase for run in runs.values() for event in run.steps} == set(Phase)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_is_there_and_formulas_hold_none_outside_text(run: Run, language: str) -> None:
    def words(key: str) -> str:
        return sentence(f"derivations.{key}", language)

    for figure in FIGURES:
        for step in range(len(run.steps)):
            shown = opened(run, figure, step)
            assert all(words(key) for key in shown.about) and words(f"figure_{figure}")
            assert all(words(f"figure_{sibling.name}") for sibling in shown.siblings)
            formula, values = shown.derivation.formula(words), shown.derivation.substituted()
            assert not CJK.search(re.sub(r"\\text\{[^{}]*\}", "", formula)) and not CJK.search(values)
            for latex in (formula, values):
                assert latex.count("{") == latex.count("}") and "$" not in latex
            assert (language == "en") or not re.search(r"\\text\{[a-z]", formula)


def of_estimates() -> Iterator[tuple[str, Derivation]]:
    """What the estimator can open: every model of the catalogue, and one with layers that have no attention."""
    shapes = [shape_named(slug) for slug in models()]
    (layers,) = shape_named("qwen3-8b").groups
    other = replace(layers, attention=None, feed_forward=FeedForward(d_ff=1000))
    shapes.append(replace(shape_named("qwen3-8b"), groups=(layers, other)))
    card = accelerator_named("mi300x")
    blocks = Request(context=9000, kv_dtypes=kv_dtypes("q8_0:f16"), accelerator=card)
    requests = Request(), blocks, Request(accelerator=card, ranks=8)
    for shape in shapes:
        for request in requests:
            made = estimate(shape, request)
            yield from (derivations(made) | where_derivations(made)).items()
    yield "attended_pairs", attended_pairs_derivation(9, 9, 4)


def test_no_word_is_left_over(runs: dict[str, Run]) -> None:
    """Each key of the catalogue is asked for somewhere: by a figure, or by name in the dialog."""
    asked: set[str] = set()

    def words(key: str) -> str:
        asked.add(key)
        return key

    for run in runs.values():
        short = new_run(run.model, PROMPT, max_new=1)
        list(generate(run.model, short))
        for figure in FIGURES:
            for shown in [opened(short, figure, 0), *(opened(run, figure, step) for step in range(len(run.steps)))]:
                shown.derivation.formula(words)
                asked |= {*shown.about, f"figure_{figure}", *(f"figure_{other.name}" for other in shown.siblings)}
    asked |= {f"figure_{name}" for name in (MODEL, DRAWN)}
    for name, derivation in of_estimates():
        derivation.formula(words)
        asked |= {f"source_{derivation.source}", f"figure_{name.replace('.', '_')}"}
    code = "".join((ROOT / f"pages/shared/{name}.py").read_text(encoding="utf-8") for name in DIALOGS)
    ours = {key.removeprefix("derivations.") for key in catalogue("en") if key.startswith("derivations.")}
    left = {key for key in ours - asked if not re.search(f"[\"']{key}[\"']", code) and not key.startswith("symbol_")}
    assert left == set()


def test_the_gap_of_formula_and_tensors_is_zero(run: Run) -> None:
    for step in range(len(run.steps)):
        formula, tensors = opened(run, "kv_formula", step), opened(run, "kv_tensors", step)
        assert formula.siblings[0].value == tensors.value and tensors.siblings[0].value == formula.value
        assert formula.value == tensors.value
        assert [figure.siblings[0].is_reference for figure in (formula, tensors)] == [True, False]


def test_without_a_cache_nothing_is_kept_and_it_says_so(runs: dict[str, Run]) -> None:
    for figure in ("kv_formula", "kv_tensors", "kv_reserved"):
        shown = opened(runs["no cache"], figure, 2)
        assert shown.value == shown.derivation.value == 0 and "about_not_kept" in shown.about
        assert "about_kept" in opened(runs["cache"], figure, 2).about
    shown = opened(runs["no cache"], "bytes_read", 2)
    assert [term.value for term in shown.derivation.terms] == [runs["no cache"].steps[2].weight_bytes_read, 0]


def test_the_chapters_formula_is_that_of_the_phase(runs: dict[str, Run]) -> None:
    symbols = [opened(runs["cache"], "flops_chapter", step).derivation.symbol for step in (0, 1)]
    assert symbols == ["C_{\\mathrm{prefill}}", "C_{\\mathrm{decode}}"]
    assert opened(runs["no cache"], "flops_chapter", 1).derivation.symbol == symbols[0]


def test_time_per_output_token_needs_two(tiny_f32: LanguageModel) -> None:
    run = new_run(tiny_f32, PROMPT, max_new=1)
    list(generate(tiny_f32, run))
    shown = opened(run, "tpot", 0)
    assert shown.value is None and "about_tpot_not_yet" in shown.about
    assert "{1 - 1}" in shown.derivation.substituted()


def test_names_from_a_browser_are_checked(runs: dict[str, Run], tiny_f32: LanguageModel) -> None:
    run = runs["cache"]
    trace = run.trace
    assert all(is_figure(figure, step, trace) for figure in FIGURES for step in range(len(trace.steps)))
    for name in ("", "nothing", "__class__", None, 3, ["ttft"], {"ttft": 1}):
        assert not is_figure(name, 0, trace)
    for step in (-1, len(trace.steps), True, False, 1.0, "0", None, 10**30):
        assert not is_figure("ttft", step, trace)
    with pytest.raises(KeyError):
        opened(run, "nothing", 0)
    for step in (-1, len(trace.steps)):
        with pytest.raises(IndexError):
            opened(run, "ttft", step)
    none = new_run(tiny_f32, PROMPT, max_new=0)
    list(generate(tiny_f32, none))
    assert [figure for figure in FIGURES if not is_figure(figure, 0, none.trace)] == ["ttft", "tpot"]
    assert opened(none, "step_time", 0).value == none.steps[0].seconds


def test_sources_are_ours_relative_and_real(run: Run) -> None:
    for figure in FIGURES:
        shown = opened(run, figure, 0)
        assert shown.sources
        for source in shown.sources:
            assert not source.path.startswith("/") and ".." not in source.path
            text = (ROOT / source.path).read_text(encoding="utf-8")
            assert source.code is not None and f"def {source.name.split('.')[-1]}(" in source.code
            assert all(line.strip() in text for line in source.code.splitlines())
            assert len(source.code.splitlines()) < 25


def test_a_server_without_sources_shows_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(source_code.inspect, "getsource", unavailable)
    assert inspect.getsource is unavailable
    (source,) = sources(Trace.time_per_output_token_s)
    assert (source.name, source.path, source.code) == ("Trace.time_per_output_token_s", "core/engine/trace.py", None)


def dialog(language: str, figure: str, step: int, use_cache: bool, max_new: int) -> None:
    """A page that opens a figure from inside a fragment, as a click does."""
    from types import SimpleNamespace

    import streamlit as st

    from core.engine.steps import generate
    from pages.shared.opened import show_opened
    from pages.shared.resources import shelf
    from tests.runs import new_run

    st.session_state["language"] = language

    @st.fragment
    def click() -> None:
        model = next(model for model in shelf().loaded if model.name == "tiny")
        run = new_run(model, list(range(5, 75)), max_new=max_new, use_cache=use_cache)
        list(generate(model, run))
        show_opened(figure, SimpleNamespace(model=model, config=run.config), run.trace, step, 0.0123)

    click()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("use_cache", "step", "max_new"), [(True, 0, 1), (True, 2, 3), (False, 1, 2)])
@pytest.mark.parametrize("figure", FIGURES)
def test_the_dialog(language: str, figure: str, use_cache: bool, step: int, max_new: int) -> None:
    arguments = (language, figure, step, use_cache, max_new)
    session = AppTest.from_function(dialog, args=arguments, default_timeout=60).run()
    assert not session.exception
    formula, values = [element.value for element in session.latex]
    assert "=" in formula and formula != values and re.search(r"\d", values)
    text = screen.text(session)
    words = {key: sentence(f"derivations.{key}", language) for key in ("formula", "substituted", "result")}
    assert all(word in text for word in words.values())
    if figure.startswith("kv_") and figure != "kv_reserved":
        assert f"{sentence('derivations.gap', language)}  0 B" in text
    assert len(session.code) >= 1 and all("def " in block.value for block in session.code)
    assert "core/" in text and str(ROOT) not in text
