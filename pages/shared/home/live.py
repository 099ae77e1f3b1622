"""The run on the home page: one for all who watch, begun with the first of them and stopped with the last.

The engine's thread makes its steps, together with everybody's; all else happens in the server's event loop. A step is
packed once, in the stage's own format, however many watch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.refusal import Refusal
from core.words import LANGUAGES

if TYPE_CHECKING:
    from core.engine.engine import Engine
    from core.engine.run import Run
    from core.engine.trace import StepEvent, Trace
    from pages.shared.started import Started

logger = logging.getLogger(__name__)

TAG = "home"
"""Whose run it is, for the engine and for those who see its seat. The tag of a visitor is never a word."""
MOST_NUMBERS = 10**7


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When things happen, in seconds.

    Attributes:
        step: from step to step: slower than the model, so that eyes can follow.
        rest: how long a finished answer stands before the next run begins.
        stream: how long a stream lasts, which is then asked for again: a server that stops waits for no longer.
        grace: how long the run goes on while nobody watches, as nobody does between two streams.
    """

    step: float = 0.3
    rest: float = 8.0
    stream: float = 4.0
    grace: float = 3.0


class LiveRun:
    """One prompt, answered again and again while somebody watches. Its methods belong to the server's event loop."""

    def __init__(self, engine: Engine, started: Started, ids: list[int], pace: Pace | None = None) -> None:
        self._engine, self._started, self._ids, self._pace = engine, started, ids, pace or Pace()
        # A run's number: no browser takes it for one of another prompt, or of this server before it was begun again.
        self.number = secrets.randbelow(MOST_NUMBERS)
        self.n_watching = 0
        self._trace: Trace | None = None
        self._refusal: Refusal | None = None
        self._over_at: float | None = None
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._packed: dict[int, bytes] = {}

    @property
    def is_running(self) -> bool:
        """Whether steps are being made, or a finished run rests."""
        return self._task is not None and not self._task.done()

    @contextmanager
    def watcher(self) -> Iterator[None]:
        """Counts somebody who watches. A moment after the last of them has gone, the run goes too, with its cache."""
        self.n_watching += 1
        try:
            yield
        finally:
            self.n_watching -= 1
            asyncio.get_running_loop().call_later(self._pace.grace, self._stop_if_alone)

    async def frames(self, number: int, have: int) -> AsyncIterator[bytes]:
        """What somebody lacks who has the first `have` steps of run `number`, then each step as it is made.

        Ends behind the answer, whose last frame says in how many seconds the next run begins; else after a while.
        """
        if not self.is_running:
            self._task = asyncio.create_task(self._perform())
            self._task.add_done_callback(self._let_go)
            await asyncio.sleep(0)  # it has its number now
        until = time.monotonic() + self._pace.stream
        while True:
            news = self._news
            start = min(max(0, have), self._n_steps) if number == self.number else 0
            if start < self._n_steps or self._over_at is not None:
                number, have = self.number, self._n_steps
                yield self._frame(start)
            left = until - time.monotonic()
            if self._over_at is not None or left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)

    @property
    def _n_steps(self) -> int:
        return len(self._trace.steps) if self._trace else 0

    async def _perform(self) -> None:
        """One run from its prefill to its end, and the rest after it."""
        from core.engine.run import Run  # brings torch: the server starts without it

        self.number += 1
        self._trace = self._refusal = self._over_at = None
        try:
            self._run = Run(self._started.model, self._ids, self._started.config)
            while not self._run.stopped:
                due = time.monotonic() + self._pace.step
                self._trace = await asyncio.wrap_future(self._engine.step(TAG, lambda: self._run, _trace_after))
                self._tell()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        except Refusal as refusal:
            self._refusal = refusal.with_traceback(None)
        self._over_at = time.monotonic()
        self._tell()
        await asyncio.sleep(self._pace.rest)

    def _tell(self) -> None:
        """Wakes all who watch."""
        self._packed.clear()
        self._news.set()
        self._news = asyncio.Event()

    def _stop_if_alone(self) -> None:
        """Ends the steps that nobody watches. A rest ends by itself: those who saw the answer come back after it."""
        if not self.n_watching and self._task is not None and self._over_at is None:
            self._task.cancel()

    def _let_go(self, task: asyncio.Task[None]) -> None:
        """Gives the run's memory back. Nothing but this object holds it: no frame of a task that was cancelled.

        What ended it otherwise (a server that stops takes no more steps) is one line of the log.
        """
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("The home page's run has ended: %s.", error)
        if self._run is not None:
            self._run.interrupt()
        self._run = None

    def _frame(self, start: int) -> bytes:
        """The run from step `start` on, made once for all who have as much of it."""
        if self._over_at is not None or start not in self._packed:  # at the end, each is told the time that is left
            self._packed[start] = self._pack(start)
        return self._packed[start]

    def _pack(self, start: int) -> bytes:
        from pages.shared import wire  # brings torch: the server starts without it

        config, trace = self._started.config, self._trace
        header = {
            "visit": TAG,
            "run": self.number,
            "version": self._n_steps,
            "watching": self.n_watching,
            "question": self._started.prompt,
            "most_columns": len(self._ids) + config.max_new - 1,
            "refused": {each: self._refusal.sentence(each) for each in LANGUAGES} if self._refusal else None,
            "again_s": None if self._over_at is None else max(0.0, self._over_at + self._pace.rest - time.monotonic()),
        }
        if trace is None:
            return wire.in_stream(wire.pack(header | {"start": 0, "total": 0, "steps": [], "facts": None}))
        header |= wire.run_header(self._started, trace, start, waiting_seconds=0.0)
        return wire.in_stream(wire.pack(header, wire.cells(trace, start)))


def _trace_after(run: Run | None, _: StepEvent | None, error: BaseException | None) -> Trace:
    """What a step left, for the event loop; called in the engine's thread."""
    if error is not None:
        raise error
    assert run is not None
    return run.trace
