"""Measurements that have the engine to themselves: one point at a time, others served in between.

A point that was disturbed (other programs, or other threads of this one, used the cores meanwhile) is measured again
and marked when it stays so.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.engine.failures import told
from core.engine.residents import Residents
from core.engine.status import Measuring

OTHERS_SECONDS = 0.5
"""How long others are served between two points while they keep coming; a point should take a second at most."""
MOST_TRIES = 3
QUIET_SHARE = 0.2
"""Of one core: more than that used by others disturbs a point."""
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class NotYet(Exception):
    """A point raises it that waits for something: it is asked again, after the others, and this was no try."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one point gave: its value, its seconds on the clock, how often it was tried, and whether it was disturbed.

    `disturbed` is None where the system does not say who uses its cores.
    """

    value: Any
    seconds: float
    n_tries: int
    disturbed: bool | None


@dataclass(eq=False)
class Measurement:
    """Points that wait for the exclusive slot, each a callable of about a second at most.

    `name` says to those who wait what is measured; `n_bytes` is kept aside from the budget meanwhile. `on_point` hears
    of every point as it is done, in the engine's thread. `cancel` ends it behind the point under way; the future then
    holds what was measured so far. `own_seconds` says what processes of its own have used of the cores so far: that
    disturbs nothing. `on_cancel` is called by `cancel`, in the thread of whoever cancels, so that such a process can
    be ended at once.
    """

    name: str
    points: Sequence[Callable[[], Any]]
    n_bytes: int = 0
    on_point: Callable[[int, Point], None] = lambda index, point: None
    own_seconds: Callable[[], float] = lambda: 0.0
    on_cancel: Callable[[], None] = lambda: None
    future: Future[list[Point]] = field(default_factory=Future)
    done: list[Point] = field(default_factory=list)
    n_tries: int = 0
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Ends it behind the point under way."""
        self.is_cancelled = True
        self.on_cancel()

    @property
    def is_over(self) -> bool:
        """Whether there is no further point to measure, or nobody who waits for one."""
        return self.is_cancelled or self.future.cancelled() or len(self.done) == len(self.points)

    def end(self, error: BaseException | None = None) -> None:
        """Hands over what was measured so far, or what was raised, unless nobody waits any more."""
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(self.done)
        else:
            self.future.set_exception(told(error))


class ExclusiveSlot:
    """The line of measurements. Used by the engine's thread; `status` by any."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._line: deque[Measurement] = deque()
        self._last_point_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._line)

    def add(self, measurement: Measurement) -> None:
        """Puts it at the end of the line."""
        self._line.append(measurement)

    def place(self, measurement: Measurement) -> int:
        """0 while it is measured, 1 for the next one, and so on; −1 when it is not in the line."""
        line = list(self._line)
        return line.index(measurement) if measurement in line else -1

    @property
    def status(self) -> Measuring | None:
        """What is measured now."""
        line = list(self._line)
        if not line:
            return None
        first = line[0]
        return Measuring(name=first.name, n_done=len(first.done), n_points=len(first.points), n_waiting=len(line) - 1)

    def step(self, others_wait: bool) -> None:
        """One point, unless it is the others' turn."""
        self._let_go()
        if not self._line or (others_wait and time.monotonic() - self._last_point_at < OTHERS_SECONDS):
            return
        measurement = self._line[0]
        try:
            if not measurement.is_over:
                with self._residents.aside(measurement.n_bytes):
                    self._measure(measurement)
        except BaseException as error:
            self._line.popleft()
            measurement.end(error)
            if not isinstance(error, Exception):
                raise  # the thread dies of it; the next one goes on with the others
        else:
            if measurement.is_over:
                self._line.popleft()
                measurement.end()
        finally:
            self._last_point_at = time.monotonic()

    def _let_go(self) -> None:
        """Ends those that were cancelled while they waited: who asked for one does not wait until it is its turn."""
        for measurement in [each for each in self._line if each.is_over]:
            self._line.remove(measurement)
            measurement.end()

    def give_up(self) -> None:
        """Ends all of them: the engine stops."""
        while self._line:
            self._line.popleft().end()

    def _measure(self, measurement: Measurement) -> None:
        index = len(measurement.done)
        measurement.n_tries += 1
        was_collecting = gc.isenabled()
        others, own = used_by_others(), measurement.own_seconds()
        gc.disable()
        started = time.perf_counter()
        try:
            value = measurement.points[index]()
        except NotYet:
            measurement.n_tries -= 1
            return
        finally:
            seconds = time.perf_counter() - started
            if was_collecting:
                gc.enable()
        disturbed = None
        if others is not None and (now := used_by_others()) is not None:
            ticks = 2 / CLOCK_TICKS_PER_S  # the system counts in ticks: less than two of them mean nothing
            by_others = now - others - (measurement.own_seconds() - own)
            disturbed = by_others > max(QUIET_SHARE * seconds, ticks)
        if disturbed and measurement.n_tries < MOST_TRIES:
            return  # once more, after the others
        point = Point(value, seconds, measurement.n_tries, disturbed)
        measurement.n_tries = 0
        measurement.done.append(point)
        measurement.on_point(index, point)


def used_by_others() -> float | None:
    """Seconds of all cores together that other programs, and other Python threads of this one, have used so far.

    The threads with which torch shares out its own work are not Python's, and count as the measurement's. None where
    the system has no /proc.
    """
    try:
        user, nice, system, _idle, _wait, irq, softirq, *_ = map(
            int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        )
        me = threading.get_native_id()
        threads = [thread.native_id for thread in threading.enumerate() if thread.native_id not in (None, me)]
        own_others = sum(_ticks(Path(f"/proc/self/task/{native_id}/stat")) for native_id in threads)
    except (OSError, ValueError):
        return None
    mine = time.process_time()
    return (user + nice + system + irq + softirq + own_others) / CLOCK_TICKS_PER_S - mine


def used_by_processes(living: Sequence[int]) -> float:
    """Seconds of all cores that processes which this one started have used so far: those whose end it has seen, and
    the `living` ones. These count as nothing where the system has no /proc."""
    ended = os.times()
    ticks = sum(_ticks(Path(f"/proc/{process_id}/stat")) for process_id in living)
    return ended.children_user + ended.children_system + ticks / CLOCK_TICKS_PER_S


def _ticks(stat: Path) -> int:
    """What a thread or process has used, by its file; nothing when it has just ended."""
    try:
        after_name = stat.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1]
    except (OSError, IndexError):
        return 0
    fields = after_name.split()
    return int(fields[11]) + int(fields[12])  # utime, stime: fields 14 and 15 of the whole line
