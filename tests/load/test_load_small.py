"""A small class of protocol clients on the tiny model: nothing lost, nothing mixed, each run as it is alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.browser.server import Server, serving
from tests.load.loop import run
from tests.load.plan import Plan, plans
from tests.load.record import Mixed, Record
from tests.load.report import Report
from tests.load.scenes import clicks, crowd, play
from tests.load.visitor import Visitor

VISITORS, SECONDS = 8, 8.0
TIMED = ("clicks a second", "95% of clicks", "tokens/s")
"""Goals that depend on how busy this machine is."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("load")) as running:
        yield running


@pytest.fixture(scope="module")
def made() -> list[Plan]:
    """Half of them greedy, half sampled; short, so that everybody begins a second run."""
    return plans("tiny", VISITORS, max_new=6, least=2)


def missed(report: Report) -> list[str]:
    """Goals that were missed and have nothing to do with speed."""
    return [f"{what}: {value}" for what, value, reached in report.goals if not reached and not what.startswith(TIMED)]


def test_a_class_that_clicks(server: Server, made: list[Plan]) -> None:
    report = run(clicks(server, made, SECONDS))
    assert not missed(report), report.problems


def test_a_class_that_plays(server: Server) -> None:
    report = run(play(server, plans("tiny", VISITORS, max_new=13, least=13), 12))
    assert not missed(report), report.problems


def test_a_crowd(server: Server, made: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.load.scenes.ARRIVAL_SECONDS", 1.0)
    monkeypatch.setattr("tests.load.scenes.CLICKS_IN_A_CROWD", 1)
    report = run(crowd(server, made))
    assert not missed(report), report.problems


def test_a_wrong_token_is_noticed(server: Server, made: list[Plan]) -> None:
    """The clients compare: were the run alone another one, they would say so."""
    wrong = [dataclasses.replace(plan, ids=(*plan.ids[:1], plan.ids[1] + 1, *plan.ids[2:])) for plan in made[:2]]
    report = run(play(server, wrong, 5))
    assert any(goal.startswith("tokens that are not those of the run alone") for goal in missed(report))
    assert all("at token 1 (decode)" in problem for problem in report.problems) and report.problems


def header(visit: str = "a", run: int = 1, start: int = 0, version: int = 1) -> dict[str, object]:
    step = {"token": [5, "five", False], "text": "five"}
    return {"visit": visit, "run": run, "start": start, "version": version, "steps": [step], "facts": {"tail": ""}}


def test_a_record_notices_holes_and_strangers() -> None:
    record = Record()
    assert record.take(header(), streamed=False) and record.take(header(start=1, version=2), streamed=True)
    assert record.ids == [5, 5] and record.text == "fivefive"
    assert not record.take(header(start=3, version=3), streamed=True) and record.n_holes == 1
    assert record.take(header(version=1), streamed=False) and len(record.steps) == 2, "older than what is here"
    for stranger in (header(visit="b", start=2, version=3), header(run=2, start=2, version=3)):
        with pytest.raises(Mixed):
            record.take(stranger, streamed=True)
    with pytest.raises(Mixed):
        record.take(header(visit="b"), streamed=False)


def test_a_visitor_who_is_not_answered_has_a_problem(made: list[Plan]) -> None:
    """No server there: an error, and no endless waiting."""
    report = Report("nobody")
    visitor = Visitor("http://127.0.0.1:9", made[0])

    async def come() -> None:
        from tests.load.scenes import everybody

        await everybody(report, [visitor], lambda each, _: each.arrive(), 5)

    run(come())
    report.count_visitors([visitor])
    assert not report.is_good and visitor.problems
