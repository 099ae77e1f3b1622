"""Measurements have the engine to themselves, a point at a time; the others wait for one point and no longer."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from core.engine import exclusive as exclusive_module
from core.engine.engine import Engine
from core.engine.exclusive import ExclusiveSlot, Measurement
from core.engine.residents import Residents
from core.engine.status import Measuring
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE, alone, answer, gate, play, step, values, wait_until
from tests.peer import random_ids, random_pair
from tests.runs import new_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("exclusive") / "m")[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


@pytest.fixture
def slot(others_stay: None) -> ExclusiveSlot:
    return ExclusiveSlot(Residents(lambda: 1000))


@pytest.fixture
def others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' time between two points does not run out while a test looks."""
    monkeypatch.setattr(exclusive_module, "OTHERS_SECONDS", PATIENCE)


# --- alone


def test_during_a_point_nothing_else_runs_in_the_engines_thread(engine: Engine, model: LanguageModel) -> None:
    """While three visitors play: no step, look or job begins or ends between the two ends of a point."""
    log: list[str] = []
    over = threading.Event()

    def point() -> str:
        log.append("[")
        time.sleep(0.02)
        log.append("]")
        return threading.current_thread().name

    def visitor(seed: int) -> None:
        run = new_run(model, random_ids(5, seed=seed), max_new=400)

        def noted(*given: Any) -> Any:
            log.append(".")
            return answer(*given)

        while not over.is_set() and run.stopped is None:
            engine.step("", lambda: run, noted).result(PATIENCE)
            engine.look("", lambda: run, noted).result(PATIENCE)
            engine.submit(lambda: log.append("."))

    threads = [threading.Thread(target=visitor, args=[seed]) for seed in range(3)]
    for thread in threads:
        thread.start()
    measurement = engine.measure(Measurement("m", [point] * 4))
    assert values(measurement) == ["engine"] * 4
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    text = "".join(log)
    assert "[" in text and text.count("[]") == text.count("[") == 4
    assert "." in text[text.index("]") : text.rindex("[")], "nobody was served between two points"


def test_others_wait_for_one_point_and_are_served_before_the_next(engine: Engine, model: LanguageModel) -> None:
    """In the middle of each point a step is asked for; it comes behind this point, whatever others there are."""
    run, log, both = play(engine, new_run(model, random_ids(5)), 1), list[str](), threading.Barrier(2)

    def point() -> None:
        log.append("[")
        both.wait(PATIENCE)  # between these two the step is asked for
        both.wait(PATIENCE)
        log.append("]")

    def noted(*given: Any) -> Any:
        log.append(".")
        return answer(*given)

    measurement, asked = engine.measure(Measurement("m", [point] * 6)), list[Future[Any]]()
    for _ in range(6):
        both.wait(PATIENCE)
        asked.append(step(engine, run, noted))
        both.wait(PATIENCE)
    assert len(values(measurement)) == len([each.result(PATIENCE) for each in asked]) == 6
    assert "".join(log) == "[]." * 6
    assert run.output_ids == alone(model, random_ids(5), len(run.steps)).output_ids


def test_while_others_keep_coming_they_have_their_time_between_two_points(slot: ExclusiveSlot) -> None:
    measurement = Measurement("m", [lambda: 1] * 2)
    slot.add(measurement)
    slot.step(others_wait=True)
    assert len(measurement.done) == 1
    slot.step(others_wait=True)
    assert len(measurement.done) == 1, "the others were not served"
    slot._last_point_at -= PATIENCE
    slot.step(others_wait=True)
    assert values(measurement) == [1, 1] and not slot


def test_with_nobody_else_the_points_follow_at_once(engine: Engine, others_stay: None) -> None:
    assert values(engine.measure(Measurement("m", [lambda: 7] * 20))) == [7] * 20


# --- the line


def test_measurements_follow_each_other_in_their_order(engine: Engine) -> None:
    leave, order = gate(engine), list[tuple[int, int]]()

    def three(n: int) -> Measurement:
        return Measurement(f"m{n}", [lambda: n] * 3, on_point=lambda index, point: order.append((n, index)))

    line = [engine.measure(three(n)) for n in range(3)]
    assert [engine.place_of_measurement(each) for each in line] == [-1, -1, -1]
    leave.set()
    assert [len(each.future.result(PATIENCE)) for each in line] == [3, 3, 3]
    assert order == [(n, index) for n in range(3) for index in range(3)]
    assert [engine.place_of_measurement(each) for each in line] == [-1, -1, -1]


def test_who_waits_can_see_what_is_measured_and_their_own_place(slot: ExclusiveSlot) -> None:
    line = [Measurement(f"m{n}", [lambda: 1] * 3) for n in range(3)]
    assert slot.status is None and not slot
    for each in line:
        slot.add(each)
    slot.step(others_wait=False)
    assert slot.status == Measuring(name="m0", n_done=1, n_points=3, n_waiting=2)
    assert [slot.place(each) for each in line] == [0, 1, 2]


@pytest.mark.parametrize("by_future", [False, True])
def test_cancelled_it_ends_behind_the_point_under_way(engine: Engine, by_future: bool) -> None:
    entered, leave = threading.Event(), threading.Event()
    points = [lambda: "first", lambda: (entered.set(), leave.wait(PATIENCE))[1], lambda: "never"]
    measurement = engine.measure(Measurement("m", points))
    following = engine.measure(Measurement("next", [lambda: "next"]))
    assert entered.wait(PATIENCE)
    assert measurement.future.cancel() if by_future else measurement.cancel() is None
    leave.set()
    assert values(following) == ["next"]
    assert [point.value for point in measurement.done] == ["first", True]
    assert by_future or values(measurement) == ["first", True]
    assert engine.status().n_restarts == 0


@pytest.mark.parametrize("by_future", [False, True])
def test_cancelled_before_it_began_it_measures_nothing(engine: Engine, by_future: bool) -> None:
    leave = gate(engine)
    measurement = engine.measure(Measurement("m", [lambda: 1]))
    assert measurement.future.cancel() if by_future else measurement.cancel() is None
    leave.set()
    assert values(engine.measure(Measurement("next", [lambda: 2]))) == [2]
    assert not measurement.done and engine.status().n_restarts == 0


@pytest.mark.parametrize("by_future", [False, True])
def test_cancelled_in_the_line_it_is_over_before_its_turn(slot: ExclusiveSlot, by_future: bool) -> None:
    first, second, third = (Measurement(f"m{n}", [lambda: 1] * 3) for n in range(3))
    for each in (first, second, third):
        slot.add(each)
    slot.step(others_wait=False)
    assert second.future.cancel() if by_future else second.cancel() is None
    slot.step(others_wait=True)
    assert second.future.done() and not second.done and slot.place(second) == -1
    assert slot.place(third) == 1 and slot.status == Measuring(name="m0", n_done=1, n_points=3, n_waiting=1)


def test_a_measurement_without_points_is_over_at_once(engine: Engine) -> None:
    assert values(engine.measure(Measurement("m", []))) == []


@pytest.mark.parametrize("where", ["point", "on_point"])
def test_what_a_point_raises_ends_its_measurement_and_no_other(engine: Engine, where: str) -> None:
    def failing(*_: Any) -> None:
        raise ZeroDivisionError

    points, on_point = ([lambda: 1, failing], lambda *_: None) if where == "point" else ([lambda: 1], failing)
    measurement = engine.measure(Measurement("m", points, on_point=on_point))
    following = engine.measure(Measurement("next", [lambda: 2]))
    with pytest.raises(ZeroDivisionError):
        measurement.future.result(PATIENCE)
    assert values(following) == [2] and len(measurement.done) == 1
    assert engine.status().measuring is None and gc.isenabled()


def test_others_of_the_line_survive_the_thread(engine: Engine) -> None:
    """The one whose point it died in is told; one that was measured half goes on where it was."""

    def deadly() -> None:
        raise SystemExit

    first = engine.measure(Measurement("m", [deadly]))
    second = engine.measure(Measurement("next", [lambda: 1, lambda: 2]))
    with pytest.raises(Refusal):
        first.future.result(PATIENCE)
    assert values(second) == [1, 2] and engine.status().n_restarts == 1 and gc.isenabled()


def test_a_thread_that_dies_between_two_points_loses_none(engine: Engine) -> None:
    entered, leave = threading.Event(), threading.Event()
    measurement = Measurement("m", [lambda: 1, lambda: (entered.set(), leave.wait(PATIENCE))[1], lambda: 3])
    engine.measure(measurement)
    assert entered.wait(PATIENCE)

    def deadly() -> None:
        raise SystemExit

    engine.submit(deadly)
    leave.set()
    assert values(measurement) == [1, True, 3]
    wait_until(lambda: engine.status().n_restarts == 1)


def test_stop_in_the_middle_hands_over_what_was_measured() -> None:
    engine, entered = Engine(lambda: MANY_BYTES), threading.Event()

    def until_stopped() -> bool:
        entered.set()
        wait_until(lambda: engine._stopping)
        return True

    measurement = Measurement("m", [lambda: 1, until_stopped, lambda: 3])
    waiting = Measurement("next", [lambda: 4])
    engine.measure(measurement)
    engine.measure(waiting)
    assert entered.wait(PATIENCE)
    engine.stop()
    assert [point.value for point in measurement.future.result(0)] == [1, True] and waiting.future.result(0) == []
