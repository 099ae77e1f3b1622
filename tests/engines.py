"""For tests of the engine: one driven by hand, round by round, and what it is handed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.engine import exclusive as exclusive_module
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.meters import Meters
from core.engine.residents import Residents, most_bytes
from core.engine.run import Run
from core.engine.scheduler import Scheduler
from core.engine.steps import generate
from core.engine.trace import Phase, StepEvent
from core.engine.turn import Turn
from core.model.load import LanguageModel
from tests.runs import new_run

MANY_BYTES = 2**40
PATIENCE = 120.0
"""Seconds until what never comes counts as missing: on a busy machine a thread may wait long for its turn."""


def answer(run: Run | None, event: StepEvent | None, error: BaseException | None) -> StepEvent | None:
    """An `end`: hands over the event, or raises what there was."""
    if error is not None:
        raise error
    return event


def values(measurement: Measurement) -> list[Any]:
    """What a measurement's points gave."""
    return [point.value for point in measurement.future.result(PATIENCE)]


def others_use(patch: pytest.MonkeyPatch) -> list[float | None]:
    """What others will have used of the cores, reading by reading; a quiet machine when nothing is left."""
    readings: list[float | None] = []
    patch.setattr(exclusive_module, "used_by_others", lambda: readings.pop(0) if readings else 0.0)
    return readings


@dataclass
class Heard:
    """A listener that keeps what it heard."""

    passes: list[tuple[str, Phase, int]] = field(default_factory=list)  # model, phase, batch
    failures: list[str] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)

    def stepped(self, model: str, phase: Phase, batch: int, seconds: float, n_tokens: int) -> None:
        self.passes.append((model, phase, batch))

    def failed(self, model: str, error: BaseException) -> None:
        self.failures.append(repr(error))

    def dropped(self, model: str, held_bytes: int) -> None:
        self.drops.append(held_bytes)

    def restarted(self, error: BaseException) -> None:
        self.restarts.append(repr(error))


class ByHand:
    """The engine without its thread: nothing happens but in `rounds`; `now` is its clock."""

    def __init__(self, budget_bytes: int = MANY_BYTES) -> None:
        self.now, self.heard = 0.0, Heard()
        self.residents = Residents(lambda: budget_bytes, lambda: self.now, lambda run, n: self.heard.drops.append(n))
        self.scheduler = Scheduler(self.residents, Meters(lambda: self.now), self.heard)

    def step(self, run: Run, tag: str = "", end: Any = answer) -> Future[Any]:
        return self._add(Turn(tag, lambda: run, end, steps=True))

    def look(self, run: Run, tag: str = "", end: Any = answer) -> Future[Any]:
        return self._add(Turn(tag, lambda: run, end, steps=False))

    def rounds(self, n: int = 1) -> None:
        for _ in range(n):
            self.scheduler.round()

    def finish(self, *futures: Future[Any]) -> list[Any]:
        """Rounds until all of them are done; their results."""
        for _ in range(1000):
            if all(future.done() for future in futures):
                return [future.result() for future in futures]
            self.scheduler.round()
        raise AssertionError("this never ends")

    def die(self) -> None:
        """What the supervisor does when the thread has died."""
        for turn in self.scheduler.recover():
            self.scheduler.add(turn)

    def _add(self, turn: Turn) -> Future[Any]:
        self.scheduler.add(turn)
        return turn.future


def alone(model: LanguageModel, ids: list[int], n_steps: int, **settings: Any) -> Run:
    """The same run with nobody else there."""
    run = new_run(model, ids, **settings)
    for event in generate(model, run):
        if len(run.steps) == n_steps:
            del event
            break
    return run


def room_for(n_runs: float, run: Run) -> int:
    """A budget for so many runs like this one."""
    return int(n_runs * most_bytes(run))


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Looks again and again, a few milliseconds apart."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.002)


def step(engine: Engine, run: Run, end: Any = answer) -> Future[Any]:
    """The run's next step, by the engine's thread."""
    return engine.step("", lambda: run, end)


def play(engine: Engine, run: Run, n_steps: int) -> Run:
    """So many steps, each asked for when the one before is there."""
    for _ in range(n_steps):
        step(engine, run).result(PATIENCE)
    return run


def gate(engine: Engine) -> threading.Event:
    """Keeps the engine's thread busy until it is set, so that what is handed in meanwhile waits together."""
    entered, leave = threading.Event(), threading.Event()
    engine.submit(lambda: (entered.set(), leave.wait(PATIENCE)))
    assert entered.wait(PATIENCE)
    return leave
