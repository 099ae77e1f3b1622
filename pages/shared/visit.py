"""A visitor's run on the page: what it was started with, what happened, and how a click moves it on.

Here is nothing of streamlit. What outlives a dropped connection (ids, settings, the record) stays in the `Visit`, which
holds no tensor. The run with its cache sits in a `Slot`, which goes when the visitor goes; should the visitor return,
the run is rebuilt by a prefill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeVar

from core.engine.engine import Engine
from core.engine.limits import Limits, StartRate
from core.engine.recorder import has_head
from core.engine.run import Run
from core.engine.steps import restore
from core.engine.trace import AttentionRow, StepEvent, Trace
from core.model.text.chat_template import Message
from core.refusal import Refusal
from pages.shared.changes import Change, Shown, shown
from pages.shared.keep import new_key
from pages.shared.started import Slot, Started, n_shared, telling_head

Answer = TypeVar("Answer")
NO_LIMITS = Limits()


@dataclass
class Visit:
    """One visitor's run, and the conversation it belongs to.

    `version` counts what happened. A click carries the version that its visitor saw, so that a second click on a button
    that has done its work already does nothing. `run_number` counts the prefills, so that a record is never mixed
    with the one before it. `turns` are the exchanges the visitor made part of the conversation. `focus` is the (layer,
    head) whose attention they look at (None: not chosen yet), `newest_attention` what the newest step attended to
    there, `arrived` how many steps of which run their browser has, `n_answers` how often it was told something,
    `under_way` the run whose step is computed or waited for.
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
    under_way: Run | None = None
    _told: Started | None = None
    _pending: Future[None] | None = None
    _stream: int = 0
    _streamed: Future[Shown | None] | None = None
    _starts: StartRate = field(default_factory=StartRate)

    @property
    def tag(self) -> str:
        """What others may call this visitor: nobody finds the key by it."""
        return blake2b(self.key.encode(), digest_size=4).hexdigest()

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
            self,
            key=new_key(),
            refusal=None,
            _pending=None,
            under_way=None,
            _streamed=None,
            arrived=(0, 0),
            _starts=StartRate(),
        )

    def prefill(self, engine: Engine, slot: Slot, started: Started, seen: int, limits: Limits = NO_LIMITS) -> None:
        """Cuts the prompt into tokens and queues the first step of a new run; the old one is dropped."""
        if not self._takes(seen):
            return
        clicked = time.perf_counter()
        try:
            self._starts.count(limits.starts_per_minute)
            ids = started.model.prompt_ids(started.prompt, raw=not started.in_chat, history=started.history)
            config = started.config
            limits.check(len(ids), config.max_new, use_cache=config.use_cache)
            run = Run(started.model, ids, config, tokenising_seconds=time.perf_counter() - clicked)
        except Refusal as refusal:
            self.refusal = refusal
            self.version += 1
            return
        started = replace(started, computed_again=self._in_cache(started, ids))
        queued = time.perf_counter()

        def begin() -> Run:
            self._forget(slot)
            run.check_interrupt()
            return run

        def first_step(run: Run, event: StepEvent | None) -> None:
            computed = event.total_seconds if event else 0.0
            self.waiting_seconds = max(0.0, time.perf_counter() - queued - computed)
            slot.run, self.started = run, started
            self._took_a_step(run, event)
            self.run_number += 1

        self.under_way = run
        self._queue(engine, Change(self, seen, begin, first_step))

    def decode(self, engine: Engine, slot: Slot, seen: int) -> None:
        """Queues one more step of the run."""
        if self._takes(seen):
            self._queue(engine, Change(self, seen, lambda: self._run(slot), self._took_a_step))

    def step_back(self, engine: Engine, slot: Slot, seen: int) -> None:
        """Queues the undoing of the last step; with the first step the run is gone."""

        def begin() -> Run | None:
            run = self._run(slot)
            if run is None or len(run.steps) > 1:
                return run
            self._forget(slot)
            return None

        def one_back(run: Run, event: StepEvent | None) -> None:
            run.step_back()
            self._took_a_step(run, event)

        if self._takes(seen):
            self._queue(engine, Change(self, seen, begin, one_back, steps=False))

    def reset(self, engine: Engine, slot: Slot) -> None:
        """Ends the run, a pass under way included, at its next layer; its memory is given back.

        It counts whatever its visitor saw: after it nothing is left that could have been meant otherwise.
        """
        if self.under_way is not None:
            self.under_way.interrupt()
        self.settle()
        self.refusal = None
        self._queue(engine, Change(self, self.version, lambda: self._forget(slot), self._took_a_step))

    def abandon(self) -> None:
        """Ends a pass over a long prefix: nobody is there any more to see what comes of it."""
        self._stream += 1
        if self.under_way is not None:
            self.under_way.interrupt()

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

    def look(self, engine: Engine, slot: Slot, question: Callable[[Run], Answer | None]) -> Future[Answer | None]:
        """Queues a question about the run, which nothing changes meanwhile; answered with None when there is none."""

        def begin() -> Run | None:
            run = self._run(slot)
            return None if run is None or run.cache is None else run

        def answer(run: Run | None, _: StepEvent | None, error: BaseException | None) -> Answer | None:
            return None if run is None or error is not None else question(run)

        return engine.look(self.tag, begin, answer)

    def open_stream(self, seen: int) -> int:
        """The name of a new stream, which ends the one before; a stream for an older screen ends before it begins."""
        self._stream += 1
        return self._stream if seen == self.version and not self.is_busy else -1

    def play_on(self, engine: Engine, slot: Slot, stream: int) -> Future[Shown | None]:
        """Queues one more step for a stream; None when it has ended, or no further token will come."""

        def begin() -> Run | None:
            self.under_way = self._run(slot) if stream == self._stream and self.can_decode else None
            return self.under_way

        def one_step(run: Run | None, event: StepEvent | None, error: BaseException | None) -> Shown | None:
            self.under_way = None
            if isinstance(error, Refusal):
                self.refusal = error
                self.version += 1
            if run is None or event is None:
                return None
            self._took_a_step(run)
            self.version += 1
            return shown(self)

        self._streamed = engine.step(self.tag, begin, one_step)
        return self._streamed

    def halt(self) -> None:
        """Ends a stream, and waits for the step that is computed for it; one that only waits does not come."""
        self._stream += 1
        if self._streamed is not None and not self._streamed.cancel():
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

    def _queue(self, engine: Engine, change: Change) -> None:
        ask = engine.step if change.steps else engine.look
        self._pending = ask(self.tag, change.begins, change.ends)

    def _took_a_step(self, run: Run, _: StepEvent | None = None) -> None:
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

    def _in_cache(self, started: Started, ids: list[int]) -> int:
        if self.trace is None or self.started is None or self.started.model is not started.model:
            return 0
        return n_shared(self.trace, ids) if self.started.config.use_cache else 0

    def _forget(self, slot: Slot) -> None:
        slot.release()
        self.started = self.trace = self.newest_attention = None
