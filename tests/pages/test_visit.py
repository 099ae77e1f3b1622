"""Clicks and the engine: a late click does nothing, work can be ended, memory is given back."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from dataclasses import replace
from typing import Any

import pytest

from core.engine.engine import Engine
from core.engine.run import RunConfig
from core.model.load import LanguageModel
from core.model.transformer import Transformer
from pages.shared.keep import KEPT_SECONDS, MOST_LEFT, Keeper
from pages.shared.resources import shelf
from pages.shared.started import Slot, Started
from pages.shared.visit import Visit
from tests.engines import PATIENCE, wait_until


@pytest.fixture
def started() -> Started:
    model: LanguageModel = shelf().loaded[-1]
    return Started(model=model, config=RunConfig(), in_chat=False, prompt="床前明月光，")


def begun(engine: Engine, started: Started) -> tuple[Visit, Slot]:
    visit, slot = Visit(), Slot()
    visit.prefill(engine, slot, started, visit.version)
    assert visit.settle() and visit.trace is not None
    return visit, slot


def test_clicks_meant_for_an_older_screen_do_nothing(engine: Engine, started: Started) -> None:
    visit, slot = begun(engine, started)
    busy = threading.Event()
    engine.submit(lambda: busy.wait(PATIENCE))
    for _ in range(3):  # all three come before the first is carried out
        visit.decode(engine, slot, seen=1)
    assert visit.is_busy
    busy.set()
    assert visit.settle() and visit.trace is not None
    assert len(visit.trace.steps) == 2 and visit.version == 2
    visit.step_back(engine, slot, seen=1)
    visit.settle()
    assert len(visit.trace.steps) == 2


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_long_pass_can_be_ended(
    engine: Engine, started: Started, use_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reset does not wait for a long prompt: the pass ends at its next layer, and the run is gone with its memory."""
    visit, slot = Visit(), Slot()
    entered, layers, through_layer = threading.Event(), list[int](), Transformer.through_layer

    def until_reset(transformer: Transformer, index: int, *more: Any) -> Any:
        layers.append(index)
        entered.set()
        wait_until(lambda: visit.under_way is not None and visit.under_way.interrupted)
        return through_layer(transformer, index, *more)

    long = Started(
        model=started.model, config=RunConfig(use_cache=use_cache), in_chat=False, prompt="床前明月光，" * 150
    )
    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "through_layer", until_reset)
        visit.prefill(engine, slot, long, visit.version)
        assert entered.wait(PATIENCE)
        visit.reset(engine, slot)
        assert visit.settle(PATIENCE)
    assert max(layers) <= 1 < started.model.config.n_layers - 1
    assert visit.trace is None and slot.run is None and not visit.is_busy
    visit.prefill(engine, slot, started, visit.version)  # and a new run is possible
    assert visit.settle() and visit.trace is not None and len(visit.trace.steps) == 1


def test_a_visit_is_kept_for_ten_minutes_after_its_visitor_left(engine: Engine, started: Started) -> None:
    clock = [0.0]
    keeper = Keeper(now=lambda: clock[0], grace_seconds=100)
    visit, slot = begun(engine, started)
    keeper.hold(visit, slot, {"seed": "9"})
    assert keeper.here(visit.key) == (visit, slot) and keeper.here("") is None
    clock[0] = 10 * KEPT_SECONDS  # while the visitor is here no time runs
    found = keeper.claim(visit.key)  # by a duplicated tab
    assert found is not None and found[0].key != visit.key and found[1] == {"seed": "9"}
    assert found[0].trace is visit.trace and found[0].started is visit.started
    keeper.left(visit.key, Slot())  # of a connection before this one
    assert keeper.here(visit.key) == (visit, slot)
    keeper.left(visit.key, slot)
    assert keeper.here(visit.key) is None
    clock[0] += KEPT_SECONDS - 1
    found = keeper.claim(visit.key)  # by the tab that was refreshed
    assert found is not None and found[0] is visit
    clock[0] += 2 * KEPT_SECONDS
    keeper.hold(visit, slot, {})
    keeper.left(visit.key, slot)
    clock[0] += KEPT_SECONDS
    assert keeper.claim(visit.key) is None and keeper.claim("no such visit") is None


def test_the_work_of_those_who_left_ends(engine: Engine, started: Started) -> None:
    """C15, and the engine: a closed tab in the middle of a long prompt keeps nobody else waiting."""
    keeper, visit, slot = Keeper(grace_seconds=0.05), Visit(), Slot()
    entered, leave = threading.Event(), threading.Event()
    engine.submit(lambda: (entered.set(), leave.wait(PATIENCE)))
    visit.prefill(engine, slot, replace(started, prompt="床前明月光，" * 150), visit.version)
    assert entered.wait(PATIENCE) and visit.activity == "waiting"
    keeper.hold(visit, slot, {})
    keeper.left(visit.key, slot)
    time.sleep(0.3)
    leave.set()
    assert visit.settle(PATIENCE) and visit.trace is None and slot.run is None
    returned = Visit()
    away = Slot()
    keeper.hold(returned, away, {})
    keeper.left(returned.key, away)
    assert keeper.claim(returned.key) is not None  # in time: its work goes on
    returned.prefill(engine, slot, started, returned.version)
    time.sleep(0.3)
    assert returned.settle(PATIENCE) and returned.trace is not None


def test_only_so_many_visits_are_kept(engine: Engine, started: Started) -> None:
    clock = [0.0]
    keeper = Keeper(now=lambda: clock[0], grace_seconds=100)
    visits = [Visit() for _ in range(MOST_LEFT + 3)]
    for visit in visits:
        clock[0] += 1
        slot = Slot()
        keeper.hold(visit, slot, {})
        keeper.left(visit.key, slot)
    assert [keeper.claim(visit.key) is None for visit in visits] == [True] * 3 + [False] * MOST_LEFT


def test_a_copy_goes_its_own_way(engine: Engine, started: Started) -> None:
    visit, slot = begun(engine, started)
    copy, other_slot = visit.copy(), Slot()
    for _ in range(2):
        copy.decode(engine, other_slot, copy.version)
        assert copy.settle()
    visit.decode(engine, slot, visit.version)
    assert visit.settle() and visit.trace is not None and copy.trace is not None
    assert (len(visit.trace.steps), len(copy.trace.steps)) == (2, 3)
    assert copy.trace.output_ids[:2] == visit.trace.output_ids


def test_the_cache_goes_with_its_slot(engine: Engine, started: Started) -> None:
    visit, slot = begun(engine, started)
    assert slot.run is not None
    cache = weakref.ref(slot.run.cache)
    engine.submit(lambda: None).result(PATIENCE)  # its thread is through with the step, and holds nothing of it
    slot.release()
    gc.collect()
    assert cache() is None and visit.trace is not None


def test_ttft_parts_add_up(engine: Engine, started: Started) -> None:
    visit, _ = begun(engine, started)
    assert visit.trace is not None and visit.trace.time_to_first_token_s is not None
    first = visit.trace.steps[0]
    assert visit.waiting_seconds >= 0
    assert visit.trace.time_to_first_token_s == pytest.approx(
        visit.trace.tokenising_seconds + first.seconds + (first.sampled.seconds if first.sampled else 0)
    )
