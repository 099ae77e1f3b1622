"""Clicks and the engine: a double click counts once, a late click does nothing, memory is given back."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from core.engine.run import RunConfig
from core.engine.worker import Worker
from core.model.load import LanguageModel
from pages.shared import visit as visit_module
from pages.shared.resources import shelf
from pages.shared.visit import Slot, Started, Visit


@pytest.fixture
def engine() -> Iterator[Worker]:
    worker = Worker("test engine")
    yield worker
    worker.stop()


@pytest.fixture
def started() -> Started:
    model: LanguageModel = shelf().loaded[-1]
    return Started(model=model, config=RunConfig(), in_chat=False)


def begun(engine: Worker, started: Started) -> tuple[Visit, Slot]:
    visit, slot = Visit(), Slot()
    visit.prefill(engine, slot, started, "床前明月光，", visit.version)
    assert visit.settle() and visit.trace is not None
    return visit, slot


def test_clicks_meant_for_an_older_screen_do_nothing(engine: Worker, started: Started) -> None:
    visit, slot = begun(engine, started)
    busy = threading.Event()
    engine.submit(lambda: busy.wait(5))
    for _ in range(3):  # all three are queued before the first is carried out
        visit.decode(engine, slot, seen=1)
    busy.set()
    assert visit.settle() and visit.trace is not None
    assert len(visit.trace.steps) == 2 and visit.version == 2
    visit.step_back(engine, slot, seen=1)
    visit.settle()
    assert len(visit.trace.steps) == 2


def test_a_double_click_counts_once(engine: Worker, started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    visit, slot = begun(engine, started)
    monkeypatch.setattr(visit_module, "DOUBLE_CLICK_SECONDS", 30.0)
    for _ in range(2):
        visit.decode(engine, slot, seen=visit.version)
        visit.settle()
    assert visit.trace is not None and len(visit.trace.steps) == 2
    visit.step_back(engine, slot, seen=visit.version)  # another button is another click
    visit.settle()
    assert len(visit.trace.steps) == 1


def test_the_cache_goes_with_its_slot(engine: Worker, started: Started) -> None:
    visit, slot = begun(engine, started)
    assert slot.run is not None
    cache = weakref.ref(slot.run.cache)
    slot.release()
    gc.collect()
    assert cache() is None and visit.trace is not None


def test_ttft_parts_add_up(engine: Worker, started: Started) -> None:
    visit, _ = begun(engine, started)
    assert visit.trace is not None and visit.trace.time_to_first_token_s is not None
    first = visit.trace.steps[0]
    assert visit.waiting_seconds >= 0
    assert visit.trace.time_to_first_token_s == pytest.approx(
        visit.trace.tokenising_seconds + first.seconds + (first.sampled.seconds if first.sampled else 0)
    )
