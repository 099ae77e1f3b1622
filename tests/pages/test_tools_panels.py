"""The three tools of page 1, each drawn on its own: asked, measured, cancelled, and what is shown is core's."""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.exclusive import Measurement
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.kv import kv_bytes
from core.estimate.recompute import recompute_gap
from core.lab.causality import CausalityProof
from core.lab.race import Race
from core.model.load import LanguageModel
from core.words import LANGUAGES, sentence
from pages.shared.figures.causality import written
from pages.shared.numbers import count, scaled
from pages.shared.resources import engine
from pages.shared.started import Started
from pages.shared.tools.connection import Connection, gone
from pages.shared.tools.job import Job
from pages.shared.tools.race import FORMULA_CARD, FORMULA_CONTEXT, FORMULA_MODEL, times
from pages.shared.visit import Visit

Panel = Callable[[str, str], AppTest]
PROMPT = "The sea is"
N_OUTPUT = 5


def _race() -> None:
    import streamlit as st

    from pages.shared.tools.race import show

    show(st.session_state["visit"])


def _causality() -> None:
    import streamlit as st

    from pages.shared.tools.causality import show

    show(st.session_state["visit"])


def _timeline() -> None:
    import streamlit as st

    from pages.shared.tools.timeline import show

    show(st.session_state["visit"])


PANELS = {"race": _race, "causality": _causality, "timeline": _timeline}


def visit_of(model: LanguageModel) -> Visit:
    """A visitor who has stepped a run."""
    run = Run(model, model.prompt_ids(PROMPT), RunConfig(max_new=N_OUTPUT))
    for _ in generate(model, run):
        pass
    visit = Visit()
    visit.started, visit.trace = Started(model=model, config=run.config, in_chat=False, prompt=PROMPT), run.trace
    return visit


@pytest.fixture
def panel(tiny_f32: LanguageModel) -> Iterator[Panel]:
    """A tool on its own, with a run: `panel("race", "en")`."""

    def opened(tool: str, language: str) -> AppTest:
        session = AppTest.from_function(PANELS[tool], default_timeout=60)
        session.session_state["language"] = language
        session.session_state["visit"] = visit_of(tiny_f32)
        session.run()
        assert not session.exception
        return session

    yield opened


def drawn(session: AppTest) -> set[str]:
    """The charts that stand there."""
    given = [json.loads(component.proto.json)["html"] for component in session.get("bidi_component")]
    return {name for html in given for name in re.findall(r'data-chart="([\w-]+)"', html)}


def said(session: AppTest) -> str:
    """All that a reader sees, drawings and their tables included."""
    bodies = [block.proto.body for block in session.get("html")]
    bodies += [json.loads(component.proto.json)["html"] for component in session.get("bidi_component")]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", "\n".join(bodies))))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def measured(session: AppTest, tool: str) -> AppTest:
    """Presses the tool's button and looks until the measurement is over, as the browser does."""
    session.button(key=f"{tool}_start").click().run()
    for _ in range(200):
        assert not session.exception
        job = session.session_state[f"{tool}_job"]
        if job.is_over():
            break
        session.run()
    return session.run()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("tool", PANELS)
def test_without_a_run_it_says_what_to_press(tool: str, language: str) -> None:
    session = AppTest.from_function(PANELS[tool])
    session.session_state["language"], session.session_state["visit"] = language, Visit()
    session.run()
    assert not session.exception and not session.button
    assert sentence("tools.needs_run", language) in said(session)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("tool", PANELS)
def test_before_the_click_nothing_is_measured(panel: Panel, tool: str, language: str) -> None:
    session = panel(tool, language)
    assert f"{tool}_job" not in session.session_state
    assert flat(sentence(f"{tool}.none", language)) in said(session)
    assert "tbt-takeaway" not in "".join(block.proto.body for block in session.get("html"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_race_shows_what_was_run(panel: Panel, language: str) -> None:
    session = panel("race", language)
    session.slider(key="race_new").set_value(6).run()
    measured(session, "race")
    result = session.session_state["race_job"].result()
    n_prompt = result.n_prompt
    assert len(result.steps) == 6 and result.tokens_equal
    shown = said(session)
    right = n_prompt * 6 + 6 * 5 // 2
    for value in (
        count(n_prompt + 5),
        count(right),
        times(right / (n_prompt + 5)),
        f"{scaled(result.flops.cached)}FLOP",
    ):
        assert value in shown
    gap = recompute_gap(shape(FORMULA_MODEL), FORMULA_CONTEXT, accelerator_named(FORMULA_CARD))
    assert times(gap.flops_ratio) in shown and times(gap.seconds_ratio or 0) in shown
    assert {"race-positions", "race-seconds"} <= drawn(session)
    session.radio(key=f"race_guess_{n_prompt}_6").set_value(right).run()
    assert flat(sentence("tools.guess_right", language, answer=count(right))) in said(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_proof_shows_what_was_compared(panel: Panel, tiny_f32: LanguageModel, language: str) -> None:
    session = measured(panel("causality", language), "causality")
    visit = session.session_state["visit"]
    proof = CausalityProof(tiny_f32, visit.trace.prompt_ids, visit.trace.output_ids)
    for point in proof.points():
        point()
    made = session.session_state["causality_job"].result()
    assert made == proof.result and made.unmasked is not None
    n_layers = tiny_f32.config.n_layers
    shown = said(session)
    assert written(made.unmasked.largest) in shown and "causality-layers" in drawn(session)
    session.radio(key="causality_guess_masked").set_value(n_layers).run()
    session.radio(key="causality_guess_unmasked").set_value(n_layers - 1).run()
    nothing, later = (
        sentence("causality.in_layers", language, changed=count(changed), layers=count(n_layers))
        for changed in (0, n_layers - 1)
    )
    assert flat(sentence("tools.guess_wrong", language, answer=nothing)) in said(session)
    assert flat(sentence("tools.guess_right", language, answer=later)) in said(session)


def test_the_visitors_own_words_are_written_to_the_right(panel: Panel, tiny_f32: LanguageModel) -> None:
    session = panel("causality", "en")
    session.text_input(key="causality_right").set_value("and <b>deep</b>").run()
    measured(session, "causality")
    made = session.session_state["causality_job"].result()
    assert list(made.right_ids) == tiny_f32.tokenizer.encode("and <b>deep</b>")
    assert "<b>deep</b>" not in "".join(block.proto.body for block in session.get("html"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_timeline_shows_what_was_allocated(panel: Panel, tiny_f32: LanguageModel, language: str) -> None:
    session = panel("timeline", language)
    session.toggle(key="timeline_score_table").set_value(True)
    session.toggle(key="timeline_all_logits").set_value(True)
    session.segmented_control(key="timeline_length").set_value(64).run()
    measured(session, "timeline")
    made = session.session_state["timeline_job"].result()
    assert made.has_ended and made.n_tokens == 64 and made.switches.score_table and made.switches.all_logits
    shown = said(session)
    config = tiny_f32.config
    for n_bytes in (
        config.n_heads * 64**2 * 4,
        64 * config.vocab_size * 4,
        kv_bytes(tiny_f32.shape, n_tokens=64, dtypes=tiny_f32.kv_dtypes),
        made.moments[-1].kv_used_bytes,
    ):
        assert f"{count(n_bytes)} B" in shown
    assert {"timeline-request", "timeline-prefill"} <= drawn(session)
    session.radio(key="timeline_guess").set_value(1).run()
    answer = sentence("timeline.guess_one", language)
    assert flat(sentence("tools.guess_right", language, answer=answer)) in said(session)


def test_what_is_refused_is_a_sentence(panel: Panel) -> None:
    session = panel("causality", "en")
    session.text_input(key="causality_right").set_value("x" * 399).run()
    session.button(key="causality_start").click().run()
    assert not session.exception
    assert "shorten it" in said(session) and "causality_job" not in session.session_state


def test_a_result_belongs_to_its_run(panel: Panel) -> None:
    session = measured(panel("timeline", "en"), "timeline")
    assert "tbt-takeaway" in "".join(block.proto.body for block in session.get("html"))
    session.session_state["visit"].run_number += 1
    session.run()
    assert "tbt-takeaway" not in "".join(block.proto.body for block in session.get("html"))


def test_it_can_be_cancelled(panel: Panel) -> None:
    session = panel("race", "en")
    session.slider(key="race_new").set_value(64).run()
    session.button(key="race_start").click().run()
    job = session.session_state["race_job"]
    if not job.is_over():  # a fast machine may be done already
        session.button(key="race_cancel").click().run()
    assert job.is_over(30)
    session.run()
    assert not session.exception and not [button for button in session.button if button.key == "race_cancel"]


def test_a_job_that_is_over_keeps_its_result_alone(panel: Panel) -> None:
    """No cache lives on in a session."""
    session = panel("race", "en")
    session.slider(key="race_new").set_value(4).run()
    measured(session, "race")
    job = session.session_state["race_job"]
    assert job.measurement is None and len(job.result().steps) == 4
    gc.collect()
    assert not [found for found in gc.get_objects() if type(found) is Race]


def test_who_leaves_ends_the_measurement(tiny_f32: LanguageModel) -> None:
    race = Race(tiny_f32, tiny_f32.prompt_ids(PROMPT), 4)
    measurement = race.measurement()
    job = Job(("", 0), measurement, lambda: race.result)
    del job
    gc.collect()
    assert measurement.is_cancelled


def test_whose_connection_is_gone_ends_the_measurement(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit keeps the session meanwhile; whoever waits in the line should not wait for it."""
    monkeypatch.setattr("pages.shared.tools.connection.GRACE_SECONDS", 0.0)
    busy = engine().measure(Measurement("before it", [lambda: time.sleep(0.05)] * 1000))
    session = panel("race", "en")
    session.button(key="race_start").click().run()
    job = session.session_state["race_job"]
    assert job.is_under_way
    for is_back in (True, False):
        connection = Connection(lambda is_back=is_back: is_back)
        connection.hold(job)
        gone(connection)
        Connection(lambda: True).hold(job)  # by a script that was still running
        assert job.is_over(0.3 if is_back else 20) is not is_back
    assert job.is_over(30) and not busy.is_over
    busy.cancel()
    session.run()
    assert not session.exception
