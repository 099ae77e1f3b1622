"""Visitors who share the engine: limits, the queue for memory, dropped caches, streams that end while they wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.limits import Limits
from core.engine.recorder import RecordConfig
from core.engine.residents import most_bytes
from core.engine.run import Run, RunConfig
from core.model.load import LanguageModel
from pages.shared import stepping
from pages.shared.resources import shelf
from pages.shared.started import Slot, Started
from pages.shared.visit import Visit
from tests.engines import PATIENCE, wait_until

RECORD = RecordConfig(candidates=4, kv_norms=True, queries=True)


def started(**settings: object) -> Started:
    model: LanguageModel = shelf().loaded[-1]
    prompt = settings.pop("prompt", "床前明月光，")
    config = RunConfig(**{"max_new": 20, "record": RECORD, **settings})  # type: ignore[arg-type]
    return Started(model=model, config=config, in_chat=False, prompt=str(prompt))


@pytest.fixture
def narrow() -> Iterator[Engine]:
    """An engine with memory for one run."""
    asked = started()
    run = Run(asked.model, asked.model.prompt_ids(asked.prompt, raw=True), asked.config)
    engine = Engine(lambda: most_bytes(run) * 3 // 2)
    yield engine
    engine.stop()


def test_limits_are_sentences(engine: Engine) -> None:
    cases = [
        (started(prompt="床前明月光，" * 9), Limits(prompt_tokens=50), "engine.prompt_over_limit"),
        (started(use_cache=False), Limits(prompt_tokens_no_cache=5), "engine.prompt_over_limit_no_cache"),
        (started(max_new=21), Limits(new_tokens=20), "engine.new_tokens_over_limit"),
    ]
    for asked, limits, key in cases:
        visit, slot = Visit(), Slot()
        visit.prefill(engine, slot, asked, 0, limits)
        assert visit.settle() and visit.trace is None and visit.refusal is not None and visit.refusal.key == key
        assert all(len(visit.refusal.sentence(language)) > 20 for language in ("en", "zh"))
        visit.prefill(engine, slot, started(), visit.version, limits=Limits())
        assert visit.settle() and visit.trace is not None and visit.refusal is None


def test_so_many_runs_a_minute(engine: Engine) -> None:
    visit, slot = Visit(), Slot()
    for number in range(4):
        visit.prefill(engine, slot, started(), visit.version, Limits(starts_per_minute=3))
        visit.settle()
        assert (visit.refusal is not None and visit.refusal.key == "engine.starts_over_limit") == (number == 3)
    assert visit.trace is not None  # what was there before stays


def test_who_waits_for_memory_is_told_their_place_and_comes_in_when_it_is_free(narrow: Engine) -> None:
    visitors = [(Visit(), Slot()) for _ in range(3)]
    for visit, slot in visitors:
        visit.prefill(narrow, slot, started(), 0)
    assert visitors[0][0].settle(PATIENCE) and visitors[0][0].trace is not None
    wait_until(lambda: [narrow.place(v.under_way) if v.under_way else 0 for v, _ in visitors] == [0, 1, 2])
    assert [seat.place for seat in narrow.status().seats] == [0, 1, 2] and narrow.status().n_queued == 2
    assert [visit.activity for visit, _ in visitors] == ["", "waiting", "waiting"]
    visitors[1][0].reset(narrow, visitors[1][1])  # who gives up leaves the queue
    assert visitors[1][0].settle(PATIENCE)
    visitors[0][1].release()  # and who leaves gives the memory back, without a word to the engine
    assert visitors[2][0].settle(PATIENCE) and visitors[2][0].trace is not None


def test_a_stream_that_waits_for_memory_ends_at_once_when_it_is_halted(narrow: Engine) -> None:
    (visit, slot), (other, other_slot) = (Visit(), Slot()), (Visit(), Slot())
    visit.prefill(narrow, slot, started(), 0)
    assert visit.settle(PATIENCE)
    narrow.submit(lambda: narrow._residents.let_go(slot.run) if slot.run else None).result(PATIENCE)
    other.prefill(narrow, other_slot, started(), 0)
    assert other.settle(PATIENCE) and other.trace is not None
    n_before = len(visit.trace.steps) if visit.trace else 0
    asked = visit.play_on(narrow, slot, visit.open_stream(visit.version))
    wait_until(lambda: slot.run is not None and narrow.place(slot.run) == 1)
    visit.halt()
    assert asked.cancelled()  # the other one has the memory still: no step came that could have been waited for
    other_slot.release()
    visit.decode(narrow, slot, visit.version)  # the run itself is as it was
    assert visit.settle(PATIENCE) and visit.trace is not None and len(visit.trace.steps) == n_before + 1


def test_a_run_whose_cache_was_dropped_goes_on_and_can_be_looked_at(engine: Engine) -> None:
    (visit, slot), (straight, straight_slot) = (Visit(), Slot()), (Visit(), Slot())
    for one, place in ((visit, slot), (straight, straight_slot)):
        one.prefill(engine, place, started(), 0)
        one.settle()
    for number in range(6):
        if number in (2, 4):
            engine.submit(lambda: engine._residents.let_go(slot.run) if slot.run else None).result(PATIENCE)
            assert slot.run is not None and not slot.run.is_resident
        if number == 4:
            looked = visit.look(engine, slot, lambda run: run.attention(1, 0, 0).weights.sum()).result(PATIENCE)
            assert looked == pytest.approx(1, abs=1e-4) and slot.run is not None and slot.run.is_resident
        for one, place in ((visit, slot), (straight, straight_slot)):
            one.decode(engine, place, one.version)
            assert one.settle(PATIENCE)
    assert visit.trace is not None and straight.trace is not None
    assert visit.trace.output_ids == straight.trace.output_ids
    visit.step_back(engine, slot, visit.version)
    assert visit.settle(PATIENCE) and len(visit.trace.steps) == 6


def test_a_step_waits_for_one_point_of_a_measurement_at_most(engine: Engine) -> None:
    visit, slot = Visit(), Slot()
    visit.prefill(engine, slot, started(), 0)
    assert visit.settle(PATIENCE)
    alone, asked, served = threading.Event(), threading.Event(), threading.Event()
    points = [lambda: (alone.set(), asked.wait(PATIENCE)), lambda: served.wait(PATIENCE), lambda: True]
    measurement = engine.measure(Measurement("test", points))
    assert alone.wait(PATIENCE) and engine.is_measuring
    visit.decode(engine, slot, visit.version)
    asked.set()
    assert visit.settle(PATIENCE / 2), "it waits for the second point, which waits for it"
    served.set()
    assert len(measurement.future.result(PATIENCE)) == 3


def test_the_page_says_why_a_step_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy:
        is_measuring = False

        def place(self, run: object) -> int:
            return 7

    visit = Visit(under_way=object())  # type: ignore[arg-type]
    monkeypatch.setattr(stepping, "engine", lambda: Busy())
    monkeypatch.setattr(Visit, "activity", "waiting")
    monkeypatch.setattr(stepping, "t", lambda key, **values: (key, values))
    assert stepping._why_it_waits(visit) == ("stage.queued", {"place": "7"})
    monkeypatch.setattr(Busy, "place", lambda self, run: 0)
    assert stepping._why_it_waits(visit)[0] == "stage.waiting"
    monkeypatch.setattr(Busy, "is_measuring", True)
    assert stepping._why_it_waits(visit)[0] == "stage.measuring"
