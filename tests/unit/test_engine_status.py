"""What the engine says about itself are the runs' own numbers, nobody's words, at any moment and from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.engine import steps as steps_module
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.meters import KEPT_LATELY, Meters
from core.engine.recorder import RecordConfig
from core.engine.residents import KEPT_STEPS, RATE_SECONDS, Place, most_bytes
from core.engine.seats import seats
from core.engine.status import Doing, Seat
from core.model.load import LanguageModel
from tests.engines import PATIENCE, ByHand, gate, play, room_for, step, wait_until
from tests.peer import random_ids, random_pair
from tests.runs import new_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return replace(random_pair("qwen3", tmp_path_factory.mktemp("status") / "m")[1], name="small")


@pytest.fixture
def engine(model: LanguageModel) -> Iterator[Engine]:
    engine = Engine(lambda: room_for(2, new_run(model, random_ids(20))))
    yield engine
    engine.stop()


def look_around(hand: ByHand) -> dict[str, Seat]:
    return {seat.tag: seat for seat in seats(hand.residents, hand.scheduler, hand.now)}


def test_a_seat_says_what_its_run_is_at_with_the_runs_own_numbers(model: LanguageModel) -> None:
    rests, decodes, prefills, waits, last = (
        new_run(model, random_ids(20, seed=n), prefill_chunk=6, record=RecordConfig(queries=True)) for n in range(5)
    )
    hand = ByHand(room_for(3, rests))
    hand.finish(hand.step(rests, "a"), hand.step(decodes, "b"))
    hand.now += RATE_SECONDS
    hand.step(prefills, "c")
    hand.rounds(2)
    hand.step(decodes, "b")
    for run, tag in ((waits, "d"), (last, "e")):
        hand.step(run, tag)
    found = look_around(hand)
    assert list(found) == ["a", "b", "c", "d", "e"]
    assert [seat.doing for seat in found.values()] == [
        Doing.RESTING,
        Doing.DECODING,
        Doing.PREFILLING,
        Doing.QUEUED,
        Doing.QUEUED,
    ]
    assert [seat.place for seat in found.values()] == [0, 0, 0, 1, 2]
    assert [seat.n_tokens for seat in found.values()] == [20, 20, 12, 0, 0]
    assert [seat.n_prefix for seat in found.values()] == [0, 0, 20, 20, 20]
    for tag, run in (("a", rests), ("b", decodes), ("c", prefills)):
        assert run.cache is not None
        assert (found[tag].kv_bytes, found[tag].held_bytes) == (run.cache.used_bytes, run.held_bytes)
    assert hand.residents.held_bytes == sum(seat.held_bytes for seat in found.values())
    assert {seat.model for seat in found.values()} == {"small"}


def test_who_has_just_stepped_is_decoding_and_rests_after_a_while(model: LanguageModel) -> None:
    hand, run = ByHand(), new_run(model, random_ids(5))
    for _ in range(8):
        hand.finish(hand.step(run, "a"))
        hand.now += 0.25
    seat = look_around(hand)["a"]
    assert seat.doing is Doing.DECODING and seat.tokens_per_s == 8 / RATE_SECONDS
    hand.now += RATE_SECONDS
    seat = look_around(hand)["a"]
    assert seat.doing is Doing.RESTING and seat.tokens_per_s == 0
    hand.residents.let_go(run)
    assert not look_around(hand)


def test_a_run_in_the_middle_of_its_pass_shows_its_positions(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the pass and its record the cache is one position ahead of the steps, and is no less there."""
    hand, run = ByHand(), new_run(model, random_ids(5))
    hand.finish(hand.step(run, "a"))
    seen: list[Seat] = []
    finish = steps_module.finish

    def looked_at(*given: Any) -> Any:
        seen.append(look_around(hand)["a"])
        return finish(*given)

    monkeypatch.setattr(steps_module, "finish", looked_at)
    hand.finish(hand.step(run, "a"))
    assert [(seat.doing, seat.n_tokens) for seat in seen] == [(Doing.DECODING, 6)] and seen[0].kv_bytes > 0


def test_a_run_that_is_refilled_shows_how_far_it_is(model: LanguageModel) -> None:
    hand, run = ByHand(), new_run(model, random_ids(20), prefill_chunk=6)
    hand.finish(hand.step(run, "a"))
    hand.residents.let_go(run)
    hand.step(run, "a")
    hand.look(run, "a")
    hand.rounds()
    seat = look_around(hand)["a"]
    assert (seat.doing, seat.n_tokens, seat.n_prefix) == (Doing.PREFILLING, 6, 20)


@pytest.mark.parametrize("per_second", [3, 31, 300, 2000])
def test_rates_are_right_however_fast_the_steps_come(model: LanguageModel, per_second: int) -> None:
    """Not all steps of the last seconds are kept; none is missed for that."""
    now = [100.0]
    place, meters = Place("", 0, 0.0), Meters(lambda: now[0])
    for _ in range(int(6 * per_second)):
        now[0] += 1 / per_second
        place.stepped_at.append(now[0])
        meters.decoded(model, 4, 0.5 / per_second)
    assert place.tokens_per_s(now[0]) == pytest.approx(per_second, rel=0.1)
    status = meters.status()[0]
    assert status.tokens_per_s == pytest.approx(4 * per_second, rel=0.1)
    assert len(place.stepped_at) <= KEPT_STEPS and status.by_batch[0].n_passes == 6 * per_second
    assert KEPT_LATELY > KEPT_STEPS
    now[0] += 2 * RATE_SECONDS
    assert place.tokens_per_s(now[0]) == meters.status()[0].tokens_per_s == meters.status()[0].batch == 0


def test_passes_are_measured_by_how_many_shared_them(model: LanguageModel) -> None:
    meters = Meters(lambda: 1.0)
    for batch, seconds in ((1, 0.010), (4, 0.020), (1, 0.012), (1, 0.5)):
        meters.decoded(model, batch, seconds)
    status = meters.status()[0]
    assert [(point.batch, point.n_passes, point.step_s) for point in status.by_batch] == [(1, 3, 0.012), (4, 1, 0.020)]
    assert status.by_batch[1].tokens_per_s == 200 and (status.batch, status.step_s) == (1, 0.5)
    assert status.weight_bytes == model.transformer.product_bytes


def test_the_whole_is_the_sum_of_its_parts_and_says_who_waits(engine: Engine, model: LanguageModel) -> None:
    runs = [new_run(model, random_ids(20, seed=seed)) for seed in range(4)]
    for run in runs[:2]:
        play(engine, run, 3)
    waiting = [step(engine, run) for run in runs[2:]]
    wait_until(lambda: engine.status().n_queued == 2)
    assert [engine.place(run) for run in runs] == [0, 0, 1, 2]
    leave = gate(engine)
    measurement = engine.measure(Measurement("the roof", [lambda: 1]))
    status = engine.status()
    leave.set()
    assert measurement.future.result(PATIENCE)
    assert status.budget_bytes == room_for(2, runs[0])
    assert status.promised_bytes == sum(most_bytes(run) for run in runs[:2])
    assert status.held_bytes == sum(run.held_bytes for run in runs[:2]) == sum(seat.held_bytes for seat in status.seats)
    assert [seat.place for seat in status.seats] == [0, 0, 1, 2] and status.n_restarts == 0
    assert [(each.model, each.by_batch[0].batch) for each in status.models] == [("small", 1)]
    del runs[0], run
    waiting[0].result(PATIENCE)


def test_a_status_holds_no_word_and_no_token_of_anybody(engine: Engine, model: LanguageModel) -> None:
    run = play(engine, new_run(model, random_ids(20)), 5)
    text = repr(engine.status())
    assert run.text not in text and str(run.output_ids)[1:-1] not in text
    for event in run.steps:
        assert event.sampled is not None and repr(event.sampled.text) not in text


def test_it_can_be_asked_from_any_thread_while_everything_changes(engine: Engine, model: LanguageModel) -> None:
    """Runs come, queue, step, are interrupted and vanish while three threads ask without a pause."""
    over, errors = threading.Event(), list[BaseException]()

    def asking() -> None:
        while not over.is_set():
            try:
                status = engine.status()
                assert status.promised_bytes <= status.budget_bytes and status.held_bytes >= 0
                assert [seat.place for seat in status.seats if seat.place] == list(
                    range(1, 1 + sum(1 for seat in status.seats if seat.place))
                )
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=asking) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            runs = [new_run(model, random_ids(20, seed=number * 5 + n), prefill_chunk=8) for n in range(5)]
            futures: list[Any] = [step(engine, run) for run in runs]
            futures[0].exception(PATIENCE)
            futures.append(engine.step("", lambda run=runs[0]: run, lambda *_: None))
            for run in runs:
                run.interrupt()
            for future in futures:
                future.exception(PATIENCE)
            del runs, run, futures, future
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not errors, errors[0]
    wait_until(lambda: engine.status().promised_bytes == 0)
