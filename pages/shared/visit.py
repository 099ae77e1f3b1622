"""A visitor's run on the page: what it was started with, what happened, and how a click moves it on.

Here is nothing of streamlit. What outlives a dropped connection (ids, settings, the record) stays in the `Visit`, which
holds no tensor. The run with its cache sits in a `Slot`, which goes when the visitor goes; should the visitor return,
the run is rebuilt by a prefill.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeVar

from core.engine.recorder import has_head
from core.engine.run import Interrupted, Run
from core.engine.steps import restore, step
from core.engine.trace import AttentionRow, Trace
from core.engine.worker import Worker
from core.model.text.chat_template import Message
from core.refusal import Refusal
from pages.shared.started import Slot, Started, telling_head

Answer = TypeVar("Answer")


def new_key() -> str:
    """A name that nobody can guess."""
    return secrets.token_urlsafe(16)


@dataclass
class Visit:
    """One visitor's run, and the conversation it belongs to.

    `version` counts what happened. A click carries the version that its visitor saw, so that a second click on a button
    that has done its work already does nothing. `run_number` counts the prefills, so that a record is never mixed
    with the one before it. `turns` are the exchanges the visitor made part of the conversation. `focus` is the (layer,
    head) whose attention they look at (None: not chosen yet), `newest_attention` what the newest step attended to
    there, `arrived` how many steps of which run their browser has, `n_answers` how often it was told something.
    """

    key: str = field(default_factory=new_key)
    version: int = 0
    run_number: int = 0
    started: Started | None = None
    trace: Trace | None = None
    waiting_seconds: float = 0.0
    refusal: Refusal | None = None
    turns: tuple[Message, ...] = ()
    focus: tuple[int, int] | None = None
    newest_attention: AttentionRow | None = None
    arrived: tuple[int, int] = (0, 0)
    n_answers: int = 0
    _told: Started | None = None
    _pending: Future[None] | None = None
    _stream: int = 0
    _streamed: Future[bool] | None = None
    _under_way: Run | None = None

    @property
    def can_decode(self) -> bool:
        """Whether another token can come."""
        return self.trace is not None and self.trace.stopped is None

    @property
    def can_continue(self) -> bool:
        """Whether the run is an exchange that can become part of the conversation: once, and only in chat form."""
        is_exchange = self.started is not None and self.started.in_chat and self.started is not self._told
        return is_exchange and self.trace is not None and bool(self.trace.text)

    @property
    def awaits_message(self) -> bool:
        """Whether the exchange on the screen is part of the conversation, and the next one has not begun."""
        return self.started is not None and self.started is self._told and bool(self.turns)

    @property
    def activity(self) -> str:
        """ "working" while a step is under way, "waiting" while it waits for those of others, else nothing."""
        if not self.is_busy or self._pending is None:
            return ""
        return "working" if self._pending.running() else "waiting"

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way."""
        return self._pending is not None and not self._pending.done()

    def copy(self) -> Visit:
        """The same record and conversation under a name of its own, without cache: for a new session or tab."""
        return replace(
            self, key=new_key(), refusal=None, _pending=None, _under_way=None, _streamed=None, arrived=(0, 0)
        )

    def prefill(self, engine: Worker, slot: Slot, started: Started, seen: int) -> None:
        """Cuts the prompt into tokens and queues the first step of a new run; the old one is dropped."""
        if not self._takes(seen):
            return
        clicked = time.perf_counter()
        try:
            ids = started.model.prompt_ids(started.prompt, raw=not started.in_chat, history=started.history)
            run = Run(started.model, ids, started.config, tokenising_seconds=time.perf_counter() - clicked)
        except Refusal as refusal:
            self.refusal = refusal
            self.version += 1
            return
        started = replace(started, computed_again=self._shared_with_cache(started, ids))
        queued = time.perf_counter()
        self._under_way = run

        def first_step() -> None:
            waited = time.perf_counter() - queued
            self._forget(slot)
            run.check_interrupt()
            step(started.model, [run])
            slot.run, self.started, self.waiting_seconds = run, started, waited
            self._took_a_step(run)
            self.run_number += 1

        self._queue(engine, seen, first_step)

    def decode(self, engine: Worker, slot: Slot, seen: int) -> None:
        """Queues one more step of the run."""

        def one_step() -> None:
            run = self._run(slot)
            if run is not None and run.stopped is None:
                self._under_way = run
                step(run.model, [run])
                self._took_a_step(run)

        if self._takes(seen):
            self._queue(engine, seen, one_step)

    def step_back(self, engine: Worker, slot: Slot, seen: int) -> None:
        """Queues the undoing of the last step; with the first step the run is gone."""

        def one_back() -> None:
            run = self._run(slot)
            if run is None or len(run.steps) <= 1:
                self._forget(slot)
                return
            run.step_back()
            self._took_a_step(run)

        if self._takes(seen):
            self._queue(engine, seen, one_back)

    def reset(self, engine: Worker, slot: Slot) -> None:
        """Ends the run, a pass under way included, at its next layer; its memory is given back.

        It counts whatever its visitor saw: after it nothing is left that could have been meant otherwise.
        """
        if self._under_way is not None:
            self._under_way.interrupt()
        self.settle()
        self.refusal = None
        self._queue(engine, self.version, lambda: self._forget(slot))

    def abandon(self) -> None:
        """Ends a pass over a long prefix: nobody is there any more to see what comes of it."""
        self._stream += 1
        if self._under_way is not None:
            self._under_way.interrupt()

    def next_turn(self, seen: int) -> bool:
        """Makes the run's prompt and answer part of the conversation, which the next prefill then begins with."""
        if not self.can_continue or not self._takes(seen) or self.started is None or self.trace is None:
            return False
        self.turns += (Message("user", self.started.prompt), Message("assistant", self.trace.text))
        self._told = self.started
        self.version += 1
        return True

    def forget_turns(self) -> None:
        """Empties the conversation; the run stays."""
        self.turns, self._told = (), None

    def look(self, engine: Worker, slot: Slot, question: Callable[[Run], Answer | None]) -> Future[Answer | None]:
        """Queues a question about the run, which nothing changes meanwhile; answered with None when there is none."""

        def answer() -> Answer | None:
            run = self._run(slot)
            return None if run is None or run.cache is None else question(run)

        return engine.submit(answer)

    def open_stream(self, seen: int) -> int:
        """The name of a new stream, which ends the one before; a stream for an older screen ends before it begins."""
        self._stream += 1
        return self._stream if seen == self.version and not self.is_busy else -1

    def play_on(self, engine: Worker, slot: Slot, stream: int) -> Future[bool]:
        """Queues one more step for a stream; False when it has ended, or no further token will come."""

        def one_step() -> bool:
            run = self._run(slot) if stream == self._stream and self.can_decode else None
            if run is None:
                return False
            self._under_way = run
            try:
                step(run.model, [run])
            except Interrupted:
                return False
            finally:
                self._under_way = None
            self._took_a_step(run)
            self.version += 1
            return True

        self._streamed = engine.submit(one_step)
        return self._streamed

    def halt(self) -> None:
        """Ends a stream, and waits for the step it is at."""
        self._stream += 1
        if self._streamed is not None:
            wait([self._streamed])
            self._streamed = None

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

    def _takes(self, seen: int) -> bool:
        """Whether a click counts: not while a step is under way, and not when it was meant for an older screen."""
        counts = seen == self.version and not self.is_busy
        if counts:
            self.refusal = None
        return counts

    def _queue(self, engine: Worker, seen: int, change: Callable[[], None]) -> None:
        def changed() -> None:
            # Looked at again in the one thread where runs change: two clicks may have been queued together.
            if seen != self.version:
                return
            try:
                change()
            except Interrupted:
                pass  # the reset that asked for it comes next
            finally:
                self.version += 1
                self._under_way = None

        self._pending = engine.submit(changed)

    def _took_a_step(self, run: Run) -> None:
        self.trace, self.newest_attention = run.trace, None
        if run.cache is not None and run.config.record.queries:
            if self.focus is None or not has_head(run.model.config, *self.focus):
                self.focus = telling_head(run)
            self.newest_attention = run.attention(len(run.steps) - 1, *self.focus)

    def _run(self, slot: Slot) -> Run | None:
        """The run in the slot; rebuilt from the record when its visitor was away and the slot is a new one."""
        if slot.run is None and self.trace is not None and self.started is not None:
            slot.run = restore(self.started.model, self.started.config, self.trace)
        return slot.run

    def _shared_with_cache(self, started: Started, ids: list[int]) -> int:
        """How many tokens at the head of `ids` have their keys and values in the present run's cache."""
        if self.trace is None or self.started is None or self.started.model is not started.model:
            return 0
        cached = [*self.trace.prompt_ids, *self.trace.output_ids[:-1]] if self.started.config.use_cache else []
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(cached, ids, strict=False)))

    def _forget(self, slot: Slot) -> None:
        slot.release()
        self.started = self.trace = self.newest_attention = None
