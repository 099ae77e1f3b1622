"""The two probabilities of every candidate open: with the record's own value, in both languages, in every setting."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.recorder import RecordConfig
from core.engine.run import Run
from core.engine.steps import generate
from core.estimate.probability import percent
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.words import LANGUAGES, catalogue, sentence
from pages.shared.chances import DRAWN, MODEL, OpenedChance, is_chance
from pages.shared.derivations import derivation_of, is_figure
from pages.shared.opened_parts import GLYPHS, SYMBOL_KEYS
from tests.pages import screen
from tests.runs import new_run

ROOT = Path(__file__).resolve().parents[2]
PROMPT = list(range(5, 25))
CJK = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
LISTED = 8
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, penalty": {"repetition_penalty": 1.8},
    "cool": {"temperature": 0.3},
    "as it is": {"temperature": 1.0},
    "hot": {"temperature": 2.5},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-p": {"temperature": 1.0, "top_p": 0.2},
    "all": {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3},
}


def made(model: LanguageModel, settings: dict[str, Any], **more: Any) -> Run:
    run = new_run(
        model, PROMPT, max_new=4, sampling=SamplingConfig(**settings), record=RecordConfig(candidates=LISTED), **more
    )
    list(generate(model, run))
    return run


@pytest.fixture(scope="module")
def runs(tiny_f32: LanguageModel) -> dict[str, Run]:
    return {name: made(tiny_f32, settings) for name, settings in SETTINGS.items()}


@pytest.fixture(params=SETTINGS)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


def opened(run: Run, kind: str, place: int, step: int) -> OpenedChance:
    started: Any = SimpleNamespace(model=run.model, config=run.config)
    found = derivation_of(f"{kind}_{place}", started, run.trace, step, waiting_seconds=0.0)
    assert isinstance(found, OpenedChance)
    return found


def everywhere(run: Run) -> list[OpenedChance]:
    steps, places = range(len(run.steps)), range(LISTED)
    return [opened(run, kind, place, step) for step in steps for place in places for kind in (MODEL, DRAWN)]


def test_a_probability_is_the_records_and_its_derivation_comes_to_it(run: Run) -> None:
    for step, event in enumerate(run.steps):
        assert event.sampled is not None and len(event.sampled.candidates) == LISTED
        for place, candidate in enumerate(event.sampled.candidates):
            own, drawn = opened(run, MODEL, place, step), opened(run, DRAWN, place, step)
            assert (own.value, drawn.value) == (candidate.probability, candidate.probability_kept)
            assert (own.other, own.other_name, drawn.other, drawn.other_name) == (drawn.value, DRAWN, own.value, MODEL)
            for shown in (own, drawn):
                assert shown.derivation.value == pytest.approx(shown.value, rel=1e-6, abs=0)
                assert shown.place == place and shown.derivation.unit == "probability"
            assert (drawn.value == 0) == (not candidate.kept)


def test_names_from_a_browser_are_checked(runs: dict[str, Run], tiny_f32: LanguageModel) -> None:
    trace = runs["all"].trace
    for kind in (MODEL, DRAWN):
        assert all(is_figure(f"{kind}_{place}", step, trace) for place in range(LISTED) for step in range(4))
        for tail in ("", "_", "_8", "_-1", "_00", "_0 ", "_1.0", "_٣", "_³", "_0_1", "_" + "9" * 5000, "_0\n"):
            assert not is_figure(f"{kind}{tail}", 0, trace), tail
        assert not is_figure(f"x{kind}_0", 0, trace) and not is_figure(f"{kind}_0", 4, trace)
        with pytest.raises(KeyError):
            opened(runs["all"], kind, LISTED, 0)
    nothing_listed = new_run(tiny_f32, PROMPT, max_new=1)
    nothing_asked = new_run(tiny_f32, PROMPT, max_new=0, record=RecordConfig(candidates=LISTED))
    for run in (nothing_listed, nothing_asked):
        list(generate(tiny_f32, run))
        assert not is_figure(f"{MODEL}_0", 0, run.trace) and not is_chance(f"{DRAWN}_0", run.steps[0])


def test_the_reason_is_the_filter_that_cut(runs: dict[str, Run]) -> None:
    cut = {
        name: {key for shown in everywhere(run) for key in shown.about if key.startswith("about_cut")}
        for name, run in runs.items()
    }
    assert cut["top-k"] == {"about_cut_by_top_k"} and cut["top-p"] == {"about_cut_by_top_p"}
    assert "about_cut_by_top_p_of_top_k" in cut["all"]
    assert not any(cut[name] for name in ("greedy", "greedy, penalty", "cool", "as it is", "hot"))
    for shown in everywhere(runs["top-k"]):
        cut_here = shown.name == DRAWN and shown.place >= 3
        assert ("about_cut_by_top_k" in shown.about) == (shown.value == 0) == cut_here and shown.values["kept"] == "3"
    assert all("about_all_kept" in shown.about for shown in everywhere(runs["hot"]) if shown.name == DRAWN)


def test_a_masked_token_is_zero_without_a_filter(runs: dict[str, Run]) -> None:
    run = runs["hot"]
    event = run.steps[0]
    assert event.sampled is not None
    masked = dataclasses.replace(
        event.sampled.candidates[0], kept=False, probability=0.0, probability_kept=0.0, logit=-math.inf, score=-math.inf
    )
    sampled = dataclasses.replace(event.sampled, candidates=(*event.sampled.candidates[:7], masked))
    steps: Any = (dataclasses.replace(event, sampled=sampled),)
    changed: Any = SimpleNamespace(model=run.model, config=run.config, steps=steps, trace=SimpleNamespace(steps=steps))
    for kind in (MODEL, DRAWN):
        shown = opened(changed, kind, 7, 0)
        assert shown.value == shown.derivation.value == 0 and "-\\infty" in shown.derivation.substituted()
        assert not any(key.startswith("about_cut") for key in shown.about)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_is_there_and_every_symbol_has_one(run: Run, language: str) -> None:
    for shown in everywhere(run):
        texts = [sentence(f"derivations.{key}", language, **shown.values) for key in shown.about]
        assert 1 <= len(texts) <= 4 and all(text and "{" not in text for text in texts)
        formula, values = shown.derivation.formula(lambda key: key), shown.derivation.substituted()
        for latex in (formula, values):
            assert latex.count("{") == latex.count("}") and "$" not in latex and not CJK.search(latex)
            assert "e-" not in latex and "nan" not in latex
        for factor in shown.derivation.factors:
            symbol = factor.symbol
            for latex, glyph in GLYPHS.items():
                symbol = symbol.replace(latex, glyph)
            assert "\\" not in symbol and f"derivations.symbol_{SYMBOL_KEYS.get(symbol, symbol)}" in catalogue("en")


def test_no_word_is_left_over(runs: dict[str, Run]) -> None:
    asked = {key for run in runs.values() for shown in everywhere(run) for key in shown.about}
    ours = (
        "about_model_p",
        "about_penalty",
        "about_greedy",
        "about_temp",
        "about_all_kept",
        "about_kept_of",
        "about_cut",
    )
    assert asked == {key.split(".")[1] for key in catalogue("en") if key.split(".")[1].startswith(ours)}


def test_sources_are_ours_and_real(run: Run) -> None:
    for kind in (MODEL, DRAWN):
        shown = opened(run, kind, 0, 1)
        assert shown.sources
        for source in shown.sources:
            text = (ROOT / source.path).read_text(encoding="utf-8")
            assert source.code is not None and f"def {source.name.split('.')[-1]}(" in source.code
            assert all(line.strip() in text for line in source.code.splitlines())
            assert len(source.code.splitlines()) < 25


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "100%"), (0.0, "0%"), (0.999996, "99.9996%"), (0.0356789, "3.568%"), (0.95263, "95.26%")]
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


def dialogs(language: str, sampling: dict[str, float], use_cache: bool) -> None:
    """A page that opens every candidate of a step, one after the other, outside of a dialog."""
    from types import SimpleNamespace

    import streamlit as st

    from core.engine.recorder import RecordConfig
    from core.engine.steps import generate
    from core.model.sampling import SamplingConfig
    from pages.shared import opened
    from pages.shared.derivations import derivation_of
    from pages.shared.resources import shelf
    from tests.runs import new_run

    st.session_state["language"] = language
    model = next(model for model in shelf().loaded if model.name == "tiny")
    settings = {"sampling": SamplingConfig(**sampling), "record": RecordConfig(candidates=8), "use_cache": use_cache}
    run = new_run(model, list(range(5, 25)), max_new=2, **settings)
    list(generate(model, run))
    started = SimpleNamespace(model=model, config=run.config)
    for place in range(8):
        for kind in ("model_probability", "drawn_probability"):
            with st.container(key=f"{kind}_{place}"):
                found = derivation_of(f"{kind}_{place}", started, run.trace, 1, waiting_seconds=0.0)
                st.html(opened.block(opened._about(found)))
                st.latex(found.derivation.formula(opened.word))
                st.latex(found.derivation.substituted())
                st.html(opened.block(opened._legend(found)))
                st.html(opened.block(opened._result(found)))
    opened.show_opened("drawn_probability_7", started, run.trace, 1, 0.0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_candidate_of_a_step_opens(language: str, settings: str) -> None:
    arguments = (language, SETTINGS[settings], settings != "hot")
    session = AppTest.from_function(dialogs, args=arguments, default_timeout=60).run()
    assert not session.exception
    assert len(session.latex) == 2 * (2 * LISTED + 1)
    text = screen.text(session)
    for key in ("figure_model_probability", "figure_drawn_probability", "gap", "result", "candidate"):
        assert sentence(f"derivations.{key}", language) in text
    assert text.count("%") >= 4 * LISTED and "{" not in text
    assert len(session.code) >= 1 and str(ROOT) not in text


def kept_legend(language: str, use_cache: bool) -> None:
    from types import SimpleNamespace

    import streamlit as st

    from core.engine.steps import generate
    from pages.shared.opened import show_opened
    from pages.shared.resources import shelf
    from tests.runs import new_run

    st.session_state["language"] = language
    model = next(model for model in shelf().loaded if model.name == "tiny")
    run = new_run(model, list(range(5, 25)), max_new=1, use_cache=use_cache)
    list(generate(model, run))
    show_opened("kv_tensors", SimpleNamespace(model=model, config=run.config), run.trace, 0, 0.0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("use_cache", [True, False])
def test_without_a_cache_n_is_what_is_kept(language: str, use_cache: bool) -> None:
    session = AppTest.from_function(kept_legend, args=(language, use_cache), default_timeout=60).run()
    assert not session.exception
    legend = re.sub(r"\s+", " ", screen.text(session))
    n, key = (20, "symbol_n") if use_cache else (0, "symbol_n_kept")
    assert f"= {n} {sentence(f'derivations.{key}', language)}" in legend
