"""A visitor's run on the page: what it was started with, what happened, and how a click moves it on.

Here is nothing of streamlit. What outlives a dropped connection (ids, settings, the record) stays in the `Visit`, which
holds no tensor. The run with its cache sits in a `Slot`, which goes when the visitor goes; should the visitor return,
the run is rebuilt by a prefill.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from core.engine.run import Run, RunConfig
from core.engine.steps import restore, step
from core.engine.trace import Trace
from core.engine.worker import Worker
from core.model.load import LanguageModel
from core.refusal import Refusal

DOUBLE_CLICK_SECONDS = 0.25


@dataclass
class Slot:
    """Where a visitor's run lies with its cache; empty before the first step and after the visitor has gone."""

    run: Run | None = None

    def release(self) -> None:
        """Gives the memory back."""
        self.run = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a run was started with."""

    model: LanguageModel
    config: RunConfig
    in_chat: bool


@dataclass
class Visit:
    """One visitor's run.

    `version` counts what happened to it. A click carries the version that its visitor saw, so that a second click on
    a button that has done its work already does nothing.
    """

    key: str = field(default_factory=partial(secrets.token_urlsafe, 16))
    version: int = 0
    started: Started | None = None
    trace: Trace | None = None
    waiting_seconds: float = 0.0
    refusal: Refusal | None = None
    _pending: Future[None] | None = None
    _last_click: dict[str, float] = field(default_factory=dict)

    @property
    def can_decode(self) -> bool:
        """Whether another token can come."""
        return self.trace is not None and self.trace.stopped is None

    def prefill(self, engine: Worker, slot: Slot, started: Started, prompt: str, seen: int) -> None:
        """Cuts the prompt into tokens and queues the first step of a new run; the old one is dropped."""
        if not self._takes("prefill", seen):
            return
        clicked = time.perf_counter()
        try:
            ids = started.model.prompt_ids(prompt, raw=not started.in_chat)
            run = Run(started.model, ids, started.config, tokenising_seconds=time.perf_counter() - clicked)
        except Refusal as refusal:
            self.refusal = refusal
            return
        queued = time.perf_counter()

        def first_step() -> None:
            waited = time.perf_counter() - queued
            slot.release()
            step(started.model, [run])
            slot.run, self.started, self.trace, self.waiting_seconds = run, started, run.trace, waited

        self._queue(engine, seen, first_step)

    def decode(self, engine: Worker, slot: Slot, seen: int) -> None:
        """Queues one more step of the run."""

        def one_step() -> None:
            run = self._run(slot)
            if run is not None and run.stopped is None:
                step(run.model, [run])
                self.trace = run.trace

        if self._takes("decode", seen):
            self._queue(engine, seen, one_step)

    def step_back(self, engine: Worker, slot: Slot, seen: int) -> None:
        """Queues the undoing of the last step; with the first step the run is gone."""

        def one_back() -> None:
            run = self._run(slot)
            if run is None or len(run.steps) <= 1:
                self._forget(slot)
                return
            run.step_back()
            self.trace = run.trace

        if self._takes("step_back", seen):
            self._queue(engine, seen, one_back)

    def reset(self, engine: Worker, slot: Slot, seen: int) -> None:
        """Queues the end of the run; its memory is given back."""
        if self._takes("reset", seen):
            self._queue(engine, seen, lambda: self._forget(slot))

    def settle(self, seconds: float | None = None) -> bool:
        """Waits (at most so long) for what was queued, so that the page shows it; False while it is not done."""
        future = self._pending
        if future is None:
            return True
        try:
            future.result(seconds)
        except TimeoutError:
            return False
        except Refusal as refusal:
            self.refusal = refusal
        finally:
            if future.done() and self._pending is future:
                self._pending = None
        return True

    def _takes(self, click: str, seen: int) -> bool:
        """Whether a click counts: not when it was meant for an older screen, nor as the second of a double click."""
        now = time.monotonic()
        counts = seen == self.version and now - self._last_click.get(click, -1e9) >= DOUBLE_CLICK_SECONDS
        if counts:
            self._last_click[click] = now
            self.refusal = None
        return counts

    def _queue(self, engine: Worker, seen: int, change: Callable[[], None]) -> None:
        def changed() -> None:
            # Looked at again in the one thread where runs change: two clicks may have been queued together.
            if seen == self.version:
                change()
                self.version += 1

        self._pending = engine.submit(changed)

    def _run(self, slot: Slot) -> Run | None:
        """The run in the slot; rebuilt from the record when its visitor was away and the slot is a new one."""
        if slot.run is None and self.trace is not None and self.started is not None:
            slot.run = restore(self.started.model, self.started.config, self.trace)
        return slot.run

    def _forget(self, slot: Slot) -> None:
        slot.release()
        self.started = self.trace = None
