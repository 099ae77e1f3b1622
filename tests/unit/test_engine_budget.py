"""Memory for caches is a number: promised before it is taken, waited for in order, and back when its run is gone."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from core.engine import finish as finish_module
from core.engine.recorder import RecordConfig
from core.engine.residents import IDLE_SECONDS, REST_SECONDS, most_bytes
from core.engine.run import Interrupted, Run
from core.engine.steps import generate, restore
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import ByHand, alone, room_for
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, assert_same_contents, contents, new_run

LOOKED_AT = RecordConfig(queries=True, attention=(1, 2))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("budget") / "m")[1]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What only the garbage collector would give back is not given back: the app collects on a timer."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def like(model: LanguageModel, n_runs: int, **settings: Any) -> list[Run]:
    """Runs of equal size."""
    return [new_run(model, random_ids(20, seed=seed), **settings) for seed in range(n_runs)]


def places(hand: ByHand) -> list[Run | None]:
    return [turn.run for turn in hand.scheduler.queue]


# --- promises


@pytest.mark.parametrize("settings", [{}, {"record": LOOKED_AT}, {"max_new": 0, "record": LOOKED_AT}, {"max_new": 60}])
@pytest.mark.parametrize("n_prompt", [1, 63, 64, 65, 128])
def test_a_run_never_takes_more_than_it_was_promised(
    model: LanguageModel, n_prompt: int, settings: dict[str, Any]
) -> None:
    run = new_run(model, random_ids(n_prompt), **{"max_new": 8, **settings})
    promised = most_bytes(run)
    for _ in generate(model, run):
        assert run.held_bytes <= promised == most_bytes(run)
    block = model.transformer.new_cache().block_tokens
    assert run.cache is not None and promised - run.held_bytes <= run.cache.used_bytes // run.cache.n_tokens * block


def test_a_run_with_a_longer_record_than_its_settings_is_promised_what_it_has(model: LanguageModel) -> None:
    long = alone(model, random_ids(60), 30, record=LOOKED_AT)
    hand = ByHand()
    run = restore(model, new_run(model, [2], max_new=2, record=LOOKED_AT).config, long.trace)
    hand.finish(hand.look(run))
    assert hand.residents.held_bytes == run.held_bytes <= hand.residents.promised_bytes


def test_what_is_promised_stays_inside_the_budget_and_those_who_are_in_go_on(model: LanguageModel) -> None:
    runs = like(model, 4)
    hand = ByHand(room_for(2.9, runs[0]))
    futures = [hand.step(run) for run in runs]
    for _ in range(5):
        hand.rounds()
        assert hand.residents.promised_bytes == room_for(2, runs[0])
        hand.finish(*(hand.step(run) for run in runs[:2]))
    assert [future.done() for future in futures] == [True, True, False, False] and places(hand) == runs[2:]


def test_the_budget_is_asked_once_and_only_when_it_is_needed(model: LanguageModel) -> None:
    hand, asked = ByHand(), list[int]()
    hand.residents._ask_budget = lambda: asked.append(1) or 10**9  # type: ignore[func-returns-value]
    assert not asked
    hand.finish(*(hand.step(run) for run in like(model, 3)))
    assert asked == [1] and hand.residents.budget_bytes == 10**9


def test_what_could_never_fit_is_refused_and_nothing_is_dropped_for_it(model: LanguageModel) -> None:
    run = like(model, 1)[0]
    hand = ByHand(room_for(1, run))
    hand.finish(hand.step(run))
    hand.now += 2 * REST_SECONDS
    with pytest.raises(Refusal) as refused:
        hand.step(new_run(model, random_ids(200))).result(0)
    assert refused.value.key == "engine.run_over_budget" and "MiB" in refused.value.sentence("zh")
    assert not hand.heard.drops and run.held_bytes and not hand.heard.failures


# --- the queue


def test_who_waits_is_let_in_in_order_also_where_a_smaller_one_would_fit(model: LanguageModel) -> None:
    first, small = like(model, 1)[0], new_run(model, random_ids(5), max_new=4)
    big = new_run(model, random_ids(150, seed=3), max_new=100)
    hand = ByHand(room_for(1, first) + most_bytes(big) - 1)
    assert most_bytes(small) + most_bytes(first) < hand.residents.budget_bytes
    hand.finish(hand.step(first))
    waiting = [hand.step(big), hand.step(small)]
    hand.rounds(3)
    assert not any(future.done() for future in waiting) and places(hand) == [big, small]
    hand.residents.let_go(first)
    hand.finish(*waiting)


def test_who_leaves_the_queue_frees_the_places_behind(model: LanguageModel) -> None:
    inside, *runs = like(model, 5)
    hand = ByHand(room_for(1, inside))
    hand.finish(hand.step(inside))
    futures = [hand.step(run) for run in runs]
    assert places(hand) == runs
    assert futures[0].cancel()
    runs[2].interrupt()
    hand.rounds()
    assert places(hand) == [runs[1], runs[3]]
    assert isinstance(futures[2].exception(0), Interrupted)
    hand.residents.let_go(inside)
    hand.rounds(2)
    assert futures[1].done() and places(hand) == [runs[3]]


def test_a_run_that_rests_makes_room_and_longest_rest_goes_first(model: LanguageModel) -> None:
    runs = like(model, 4)
    hand = ByHand(room_for(3, runs[0]))
    hand.finish(*(hand.step(run) for run in runs[:3]))
    for run in (runs[1], runs[0]):
        hand.now += 1
        hand.finish(hand.step(run))
    hand.now += REST_SECONDS - 0.5  # two of them have rested long enough
    hand.finish(hand.step(runs[3]))
    assert [run.held_bytes > 0 for run in runs] == [True, True, False, True]
    assert len(hand.heard.drops) == 1 and hand.heard.drops[0] > 0
    hand.finish(hand.step(runs[2]))
    assert [run.held_bytes > 0 for run in runs] == [True, False, True, True]
    refused = hand.step(runs[1])
    hand.rounds(2)
    assert not refused.done(), "nobody has rested long enough"


def test_a_run_that_somebody_waits_for_is_not_dropped(model: LanguageModel) -> None:
    one, other = like(model, 2, prefill_chunk=5)
    hand = ByHand(room_for(1, one))
    working = hand.step(one)
    hand.rounds()
    hand.now += 2 * IDLE_SECONDS
    waiting = hand.step(other)
    hand.rounds(2)
    assert hand.residents.sweep() == 0 and not working.done() and not waiting.done()
    hand.finish(working)
    assert one.held_bytes


def test_idle_runs_are_swept_and_resume_by_a_prefill(model: LanguageModel) -> None:
    """Tokens, contents, attention of old steps and queries are as if nothing had been dropped."""
    hand, ids = ByHand(), random_ids(60)
    for settings in ({"record": LOOKED_AT}, {"record": LOOKED_AT, "prefill_chunk": 7, "sampling": SAMPLED}):
        run, peer = new_run(model, ids, **settings), alone(model, ids, 9, **settings)
        for _ in range(6):
            hand.finish(hand.step(run))
        hand.now += IDLE_SECONDS
        held = run.held_bytes
        assert hand.residents.sweep() == held > 0 and run.held_bytes == 0
        assert hand.residents.promised_bytes == 0 and hand.heard.drops[-1] == held
        for _ in range(3):
            hand.finish(hand.step(run))
        assert run.output_ids == peer.output_ids and len(run.queries) == 9
        assert_same_contents(contents(run), contents(peer), 1e-4)
        assert_same_contents(tuple(run.queries), tuple(peer.queries), 1e-4)
        for number in range(9):
            assert abs(run.attention(number, 0, 1).weights - peer.attention(number, 0, 1).weights).max() < 1e-4
        hand.residents.let_go(run)


def test_the_order_holds_when_the_thread_dies(model: LanguageModel) -> None:
    first, *rest = like(model, 4)
    small = new_run(model, random_ids(5), max_new=4)
    hand = ByHand(room_for(1.8, first))
    hand.finish(hand.step(first))
    working, waiting = hand.step(first), [hand.step(run) for run in (*rest, small)]
    hand.die()
    hand.finish(working)
    assert places(hand) == [*rest, small] and not any(future.done() for future in waiting)
    assert first.output_ids == alone(model, random_ids(20), 2).output_ids


# --- the loop without a cache


def test_without_a_cache_memory_is_promised_for_the_step_only(model: LanguageModel) -> None:
    runs = like(model, 2, use_cache=False, prefill_chunk=7)
    hand = ByHand(room_for(1, runs[0]))
    futures = [hand.step(run) for run in runs]
    hand.rounds()
    assert hand.residents.promised_bytes == room_for(1, runs[0]) and places(hand) == [runs[1]]
    hand.finish(*futures)
    assert hand.residents.promised_bytes == 0 and not hand.heard.drops
    assert runs[1].output_ids == alone(model, random_ids(20, seed=1), 1).output_ids


# --- back at once


@pytest.mark.parametrize("moment", ["resting", "interrupted", "failed", "cancelled", "queued", "in the end"])
def test_what_a_run_was_promised_is_back_with_its_last_reference(
    model: LanguageModel, moment: str, no_collection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No collection, and whoever keeps the future or its error keeps no memory, of others neither."""
    runs = like(model, 3, prefill_chunk=5)
    hand = ByHand(room_for(3, runs[0]))
    kept: list[Any] = []
    if moment == "interrupted":
        kept.append(hand.step(runs[0]))
        hand.rounds(2)
        runs[0].interrupt()
        hand.rounds(2)
    else:
        hand.finish(*(hand.step(run) for run in runs))
    if moment == "failed":

        def choking(*_: Any, **__: Any) -> int:
            raise ZeroDivisionError

        monkeypatch.setattr(finish_module, "choose", choking)
        kept += [hand.step(run) for run in runs]
        hand.rounds()
        kept += [future.exception(0) for future in kept]
    elif moment == "cancelled":
        kept += [hand.step(run) for run in runs]
        assert all(future.cancel() for future in kept)
        hand.rounds()
    elif moment == "queued":
        kept.append(hand.step(new_run(model, random_ids(9))))
        kept[0].cancel()
        hand.rounds()
    elif moment == "in the end":
        monkeypatch.setattr(logging.getLogger("core.engine.failures"), "disabled", True)  # pytest keeps what is logged
        kept += [hand.step(run, end=lambda *given: 1 / 0) for run in runs]
        hand.rounds()
    runs.clear()
    assert hand.residents.promised_bytes == hand.residents.held_bytes == 0
    assert all(future.done() for future in kept if isinstance(future, Future))


def test_an_interrupted_run_gives_back_what_it_was_promised_also_while_it_is_kept(model: LanguageModel) -> None:
    run = like(model, 1, prefill_chunk=5)[0]
    hand = ByHand(room_for(1, run))
    future = hand.step(run)
    hand.rounds(2)
    run.interrupt()
    hand.rounds(1)
    assert isinstance(future.exception(0), Interrupted)
    assert run.held_bytes == hand.residents.promised_bytes == 0


def test_a_resting_run_that_was_interrupted_makes_room_at_once(model: LanguageModel) -> None:
    run, other = like(model, 2)
    hand = ByHand(room_for(1, run))
    hand.finish(hand.step(run))
    run.interrupt()
    hand.finish(hand.step(other))
    assert run.held_bytes == 0


# --- memory that is no run's


def test_aside_counts_drops_who_rests_and_is_refused_where_nobody_does(model: LanguageModel) -> None:
    run = like(model, 1)[0]
    hand = ByHand(room_for(2, run))
    hand.finish(hand.step(run))
    half = room_for(1, run)
    with hand.residents.aside(half):
        assert hand.residents.promised_bytes == 2 * half == hand.residents.budget_bytes
        with pytest.raises(Refusal) as refused, hand.residents.aside(1):
            raise AssertionError("there was no room")
        assert refused.value.key == "engine.no_room_aside"
        waiting = hand.step(new_run(model, random_ids(20, seed=2)))
        hand.rounds(2)
        assert not waiting.done()
    hand.finish(waiting)
    hand.now += 2 * REST_SECONDS
    with pytest.raises(ZeroDivisionError), hand.residents.aside(2 * half):
        assert run.held_bytes == 0
        raise ZeroDivisionError
    assert hand.residents.promised_bytes == 0
