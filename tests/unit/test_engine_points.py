"""What a point of a measurement finds: no collector, its memory, and a mark where others used the cores."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.engine import exclusive as exclusive_module
from core.engine.exclusive import CLOCK_TICKS_PER_S, MOST_TRIES, ExclusiveSlot, Measurement, Point, used_by_others
from core.engine.residents import Residents
from core.refusal import Refusal
from tests.engines import others_use, values


@pytest.fixture
def slot() -> ExclusiveSlot:
    return ExclusiveSlot(Residents(lambda: 1000))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    return others_use(monkeypatch)


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_during_a_point_and_after_it_all_is_as_before(slot: ExclusiveSlot, was_on: bool) -> None:
    def failing() -> None:
        assert not gc.isenabled()
        raise ZeroDivisionError

    if not was_on:
        gc.disable()
    try:
        for points in ([gc.isenabled], [failing]):
            measurement = Measurement("m", points)
            slot.add(measurement)
            slot.step(others_wait=False)
            assert gc.isenabled() == was_on
            assert measurement.future.exception(0) or not measurement.done[0].value
    finally:
        gc.enable()


def test_its_memory_is_kept_aside_during_a_point_and_refused_where_there_is_none(slot: ExclusiveSlot) -> None:
    fits = Measurement("m", [lambda: slot._residents.promised_bytes] * 2, n_bytes=1000)
    too_much = Measurement("m", [lambda: 1], n_bytes=1001)
    for each in (fits, too_much):
        slot.add(each)
    for _ in range(3):
        slot.step(others_wait=False)
        assert slot._residents.promised_bytes == 0
    assert values(fits) == [1000, 1000]
    with pytest.raises(Refusal) as refused:
        too_much.future.result(0)
    assert refused.value.key == "engine.no_room_aside"


@pytest.mark.parametrize(
    ("readings", "n_tries", "disturbed"),
    [
        ([5.0, 5.0], 1, False),
        ([5.0, 5.019], 1, False),  # less than two ticks say nothing
        ([5.0, 6.0, 7.0, 7.0], 2, False),
        ([5.0, 6.0] * (MOST_TRIES - 1) + [5.0, 5.0], MOST_TRIES, False),
        ([5.0, 6.0] * MOST_TRIES, MOST_TRIES, True),
        ([None], 1, None),
        ([5.0, None], 1, None),
    ],
)
def test_a_disturbed_point_is_measured_again_and_marked_when_it_stays_so(
    slot: ExclusiveSlot, used: list[float | None], readings: list[float | None], n_tries: int, disturbed: bool | None
) -> None:
    used[:] = readings
    runs, told = list[int](), list[tuple[int, Point]]()
    measurement = Measurement(
        "m", [lambda: runs.append(1) or len(runs)] * 2, on_point=lambda index, point: told.append((index, point))
    )
    slot.add(measurement)
    for _ in range(n_tries):
        assert not measurement.done
        slot.step(others_wait=False)
    point = measurement.done[0]
    assert (point.n_tries, point.disturbed, point.value) == (n_tries, disturbed, n_tries)
    assert told == [(0, point)] and 0 <= point.seconds < 1
    slot.step(others_wait=False)
    assert measurement.future.result(0)[1].n_tries == 1, "tries are counted for each point"


def test_a_tiny_share_of_a_long_point_does_not_disturb_it(
    slot: ExclusiveSlot, used: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test's own, on which the point takes a second."""
    seconds = [0.0]

    def point() -> None:
        seconds[0] += 1

    clock = SimpleNamespace(perf_counter=lambda: seconds[0], monotonic=lambda: seconds[0])
    monkeypatch.setattr(exclusive_module, "time", clock)
    for share, n_tries in ((0.1, 1), (0.5, 2)):
        used[:] = [0.0, share]
        measurement = Measurement("m", [point])
        slot.add(measurement)
        while not measurement.future.done():
            slot.step(others_wait=False)
        assert measurement.done[0].n_tries == n_tries


def test_another_thread_that_computes_is_seen_and_the_points_own_work_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on this machine, where other programs can only add to it; and alone, on one that runs nothing else."""
    if used_by_others() is None:
        pytest.skip("this system does not say who uses its cores")
    over, by_busy = threading.Event(), [0.0]

    def busy() -> None:
        while not over.is_set():
            sum(range(1000))
            by_busy[0] = time.thread_time()

    def by_others(clock: Callable[[], float], seconds: float) -> float:
        before, began = used_by_others(), clock()
        while clock() - began < seconds:
            sum(range(1000))
        after = used_by_others()
        assert before is not None and after is not None
        return after - before

    def stat(encoding: str) -> str:
        user, system, *_ = (int(seconds * CLOCK_TICKS_PER_S) for seconds in os.times())
        idle = int(time.monotonic() * CLOCK_TICKS_PER_S)
        return f"cpu  {user} 0 {system} {idle} {idle} 0 0 0 0 0\ncpu0 {user} 0 {system} {idle} {idle} 0 0 0 0 0\n"

    def quiet_machine(name: str) -> Any:
        return SimpleNamespace(read_text=stat) if name == "/proc/stat" else Path(name)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert by_others(lambda: by_busy[0], 0.2) > 0.1
        monkeypatch.setattr(exclusive_module, "Path", quiet_machine)
        assert by_others(lambda: by_busy[0], 0.2) > 0.1
    finally:
        over.set()
        thread.join()
    assert min(by_others(time.thread_time, 0.1) for _ in range(2)) < 0.05
