"""The roofs on the page: none, measured by one and seen by all, stopped, failed; and the visitor's own steps."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.lab.roofs import kept
from core.lab.roofs.kept import keep, kept_roofs
from core.lab.roofs.probes import Probe
from core.lab.roofs.processes import Processes
from core.lab.roofs.steps import middle_step
from core.model.load import LanguageModel
from core.refusal import Refusal
from core.words import LANGUAGES, sentence
from pages.shared.numbers import count, milliseconds, percent, scaled_bytes
from pages.shared.started import Started
from pages.shared.time import roofs as panel_module
from pages.shared.time.machine import measured_steps
from pages.shared.time.roofs_job import RoofsJob
from pages.shared.time.roofs_tables import intensity
from pages.shared.visit import Visit
from tests.engines import PATIENCE
from tests.roofs import FakeRunner, roofs_here

N_NEW = 9


def _panel() -> None:
    from pages.shared.time.roofs import show

    show()


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RoofsJob]:
    """A server on which nothing was measured."""
    monkeypatch.setenv("TBT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "_unwritten", {})
    job = RoofsJob()
    monkeypatch.setattr(panel_module, "ROOFS_JOB", job)
    yield job
    if job.under_way is not None:
        job.under_way.cancel()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """What probes run in here."""
    fake = FakeRunner()
    use(monkeypatch, fake)
    return fake


def use(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    begin = RoofsJob.begin
    monkeypatch.setattr(RoofsJob, "begin", lambda self: begin(self, fake))


@pytest.fixture
def visit(tiny_f32: LanguageModel) -> Visit:
    """A visitor who has stepped a run."""
    run = Run(tiny_f32, tiny_f32.prompt_ids("The sea is"), RunConfig(max_new=N_NEW))
    for _ in generate(tiny_f32, run):
        pass
    visit = Visit()
    visit.started = Started(model=tiny_f32, config=run.config, in_chat=False, prompt="The sea is")
    visit.trace = run.trace
    return visit


def opened(language: str, visit: Visit | None = None) -> AppTest:
    session = AppTest.from_function(_panel, default_timeout=60)
    session.session_state["language"] = language
    if visit is not None:
        session.session_state["visit"] = visit
    session.run()
    assert not session.exception
    return session


def said(session: AppTest) -> str:
    """All that a reader sees."""
    bodies = "\n".join(block.proto.body for block in session.get("html"))
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", bodies)))


def labels(session: AppTest) -> list[str]:
    return [button.label for button in session.button]


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_measured_is_a_sentence_and_a_button(language: str) -> None:
    session = opened(language)
    assert sentence("roofs.none", language) in said(session)
    assert sentence("roofs.steps_none", language) in said(session)
    assert labels(session) == [sentence("roofs.measure", language)]
    assert "tbt-takeaway" not in "".join(block.proto.body for block in session.get("html"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_measured_by_one_it_is_kept_and_seen_by_all(language: str, runner: FakeRunner) -> None:
    session = opened(language)
    session.button(key="roofs_measure").click().run()
    wait_for_roofs(session)
    roofs = kept_roofs()
    assert roofs is not None and runner.is_ended
    for one in (session, opened(language)):
        one.run()
        assert not one.exception and labels(one) == [sentence("roofs.again", language)]
        assert f"{scaled_bytes(round(roofs.read_bytes_per_s), 'binary')}/s" in said(one)
        assert roofs.machine.processor in said(one) and sentence("roofs.none", language) not in said(one)
        best = roofs.best("product")
        assert best is not None
        ridge = intensity(best.rate / roofs.read_bytes_per_s)
        assert sentence("roofs.takeaway_roofs", language, dtype=best.dtype, ridge=ridge) in said(one)


def wait_for_roofs(session: AppTest) -> None:
    for _ in range(100):
        if kept_roofs() is not None:
            return
        session.run()
    raise AssertionError("nothing was kept")


class Held(FakeRunner):
    """A probe that lasts until it is let go, or ended."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.leave = threading.Event(), threading.Event()

    def run(self, probe: Probe) -> dict[str, Any] | None:
        self.entered.set()
        assert self.leave.wait(PATIENCE)
        return super().run(probe)

    def end(self) -> None:
        super().end()
        self.leave.set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_while_it_lasts_all_see_how_far_it_is_and_its_visitor_can_stop_it(
    language: str, job: RoofsJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    use(monkeypatch, held)
    session = opened(language)
    session.button(key="roofs_measure").click().run()
    assert held.entered.wait(PATIENCE) and job.under_way is not None
    under_way, total = job.under_way, len(job.under_way.points)
    other = opened(language)
    session.run()
    progress = sentence("roofs.done", language, done="0", total=count(total))
    for one in (session, other):
        assert [json.dumps(bar.proto.text, ensure_ascii=False).strip('"') for bar in one.get("progress")] == [progress]
    assert labels(session) == [sentence("tools.cancel", language)] and labels(other) == []
    assert job.begin() is under_way, "a second one began beside it"
    session.button(key="roofs_cancel").click().run()
    under_way.future.result(PATIENCE)
    session.run()
    assert kept_roofs() is None and job.refusal is None
    assert labels(session) == [sentence("roofs.measure", language)] and not session.exception


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_failed_is_said_and_what_was_kept_stays(
    language: str, job: RoofsJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keep(roofs_here())
    refusal = Refusal("roofs.probe_failed", roof="curve", kernel="sum", status=-9)
    use(monkeypatch, FakeRunner(fails=refusal))
    session = opened(language)
    session.button(key="roofs_measure").click().run()
    for _ in range(100):
        if job.refusal is not None:
            break
        session.run()
    session.run()
    assert refusal.sentence(language) in said(session) and kept_roofs() == roofs_here()


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RoofsJob) -> None:
        raise Refusal("engine.device_missing", device="cuda:9")

    monkeypatch.setattr(RoofsJob, "begin", refuse)
    session = opened("en")
    session.button(key="roofs_measure").click().run()
    assert "cuda:9" in said(session) and labels(session) == [sentence("roofs.measure", "en")]


def test_the_server_measures_in_processes_unless_told_otherwise(job: RoofsJob, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Probe] = []
    monkeypatch.setattr(Processes, "run", lambda self, probe: asked.append(probe))
    job.begin().future.result(PATIENCE)
    assert asked and kept_roofs() is None, "answers of nothing made a record"


# --- the visitor's steps


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_newest_steps_stand_with_floor_and_share(language: str, visit: Visit) -> None:
    assert keep(roofs_here()) and visit.trace is not None
    *others, last = visit.trace.steps
    visit.trace = replace(visit.trace, steps=(*others, replace(last, seconds=9.0)))  # a share of "< 0.1%"
    session, steps = opened(language, visit), measured_steps(visit)
    assert len(steps) == N_NEW
    rows = [
        block.proto.body
        for block in session.get("html")
        if sentence("roofs.head_intensity", language) in block.proto.body
    ]
    assert len(rows) == 1 and rows[0].count("<tr>") == 1 + 7, "the prefill and the newest six"
    for step in (steps[0], *steps[-6:]):
        assert step.floor_s is not None and step.share is not None
        share = sentence(f"roofs.share_{step.bound}", language, share=percent(step.share))
        for text in (count(step.n_tokens), milliseconds(step.seconds), milliseconds(step.floor_s), share):
            assert f"<td>{escape(text)}</td>" in rows[0]
    decode, prefill = middle_step(steps, "decode"), middle_step(steps, "prefill")
    assert decode is not None and prefill is not None and decode.share is not None and prefill.share is not None
    takeaway = sentence(
        "roofs.takeaway_both",
        language,
        model="tiny",
        n=count(prefill.n_tokens),
        decode_intensity=intensity(decode.intensity),
        decode_share=percent(decode.share),
        decode_bound=sentence(f"roofs.bound_{decode.bound}", language),
        prefill_intensity=intensity(prefill.intensity),
        prefill_share=percent(prefill.share),
        prefill_bound=sentence(f"roofs.bound_{prefill.bound}", language),
    )
    assert takeaway in said(session)


def test_steps_without_roofs_have_their_figures_and_no_share(visit: Visit) -> None:
    session = opened("en", visit)
    steps = measured_steps(visit)
    assert {step.share for step in steps} == {None} and milliseconds(steps[-1].seconds) in said(session)
    assert "–" in said(session) and sentence("roofs.none", "en") in said(session)


def test_nobody_without_a_run_has_steps() -> None:
    assert measured_steps(None) == measured_steps(Visit()) == ()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_guess_is_answered_by_measurement(language: str, visit: Visit) -> None:
    session = opened(language)
    session.radio(key="roofs_guess").set_value(1).run()
    assert sentence("roofs.guess_open", language) in said(session)
    assert keep(roofs_here())
    session = opened(language, visit)
    middle = middle_step(measured_steps(visit), "decode")
    assert middle is not None and middle.share is not None
    nearest = min(panel_module.CHOICES, key=lambda choice: abs(choice - 100 * (middle.share or 0)))
    for said_choice in panel_module.CHOICES:
        session.radio(key="roofs_guess").set_value(said_choice).run()
        key = "roofs.guess_right" if said_choice == nearest else "roofs.guess_wrong"
        assert sentence(key, language, share=percent(middle.share), count=count(N_NEW - 1)) in said(session)


def test_what_fits_into_a_cache_and_what_has_no_roof_is_said(visit: Visit) -> None:
    roofs = roofs_here()
    assert keep(roofs)
    assert "fits into this processor's last cache" not in said(opened("en", visit)), "its cache holds 1 MiB"
    caches = roofs.caches or ()
    assert keep(roofs_here(caches=(*caches[:1], type(caches[0])(3, "Unified", 2**26, 1))))
    assert "fits into this processor's last cache (64.0 MiB)" in said(opened("en", visit))
    assert keep(
        roofs_here(readings=tuple(each for each in roofs.readings if each.dtype != "f32" or each.roof != "product"))
    )
    assert "No roof was measured for f32" in said(opened("en", visit))


def test_readings_that_were_disturbed_are_counted_and_unknown_caches_said() -> None:
    assert keep(roofs_here(caches=None))
    text = said(opened("en"))
    assert sentence("roofs.disturbed", "en", count="1", total="7") in text
    assert sentence("roofs.caches_unknown", "en") in text
