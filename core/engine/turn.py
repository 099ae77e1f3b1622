"""One thing that somebody waits for and that needs a run: its next step, or a look into its cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.engine.failures import failed_step, told, without_frames
from core.engine.prefix import PrefixPass
from core.engine.run import Interrupted, Run
from core.engine.trace import StepEvent
from core.refusal import Refusal

Begin = Callable[[], Run | None]
End = Callable[[Run | None, StepEvent | None, BaseException | None], Any]


@dataclass(eq=False, slots=True)
class Turn:
    """Handed to the engine from any thread; everything in it is called in the engine's.

    Attributes:
        tag: whose it is, anonymous.
        begin: called when the engine takes it up; the run it is about, or None: there is nothing to do.
        end: called once with run, event and error, of which those are None that there are not; what it returns or
            raises goes to the future. `event` is None for a look and for a run that had come to its end. It is not
            called for a turn that was cancelled, nor when the engine stops.
        steps: whether it is a step; else the run's cache is all it needs.
        n_steps: how many steps the run had before it; None for a look.
        started: whether work on it began; None as long as it can be cancelled, or was and nobody was told.
        event: its step, where that was done when the engine's thread died and only the cache is wanted again.
        is_seated: whether its run was let in for it.
        retries: how often the engine's thread died under it.
    """

    tag: str
    begin: Begin
    end: End
    steps: bool
    future: Future[Any] = field(default_factory=Future)
    run: Run | None = None
    prefix: PrefixPass | None = None
    n_steps: int | None = None
    started: bool | None = None
    event: StepEvent | None = None
    is_seated: bool = False
    retries: int = 0

    @property
    def wants_step(self) -> bool:
        """Whether a step is to be computed: it is one, it is not done, and a further token can come."""
        return self.steps and self.event is None and self.run is not None and self.run.stopped is None

    @property
    def wants_prefix(self) -> bool:
        """Whether a pass over the prefix comes first, or is its step."""
        run = self.run
        empty = run is not None and (run.cache is None or not run.cache.n_tokens)
        return run is not None and (not run.is_resident or (self.wants_step and empty))

    @property
    def is_stale(self) -> bool:
        """Whether its run was changed (a step undone) since its pass over the prefix began."""
        run, prefix = self.run, self.prefix
        if run is None or prefix is None:
            return False
        n_tokens = run.n_to_cache if prefix.is_refill else len(run.ids)
        return prefix.n_tokens != n_tokens or (run.cache is not None and run.cache.n_tokens != prefix.n_done)

    def began_again(self) -> None:
        """The engine's thread died: a step that was done is remembered. Raises RuntimeError where it died twice."""
        if self.retries > 1:
            raise RuntimeError("the engine's thread died in this step, twice")
        if self.run is not None and self.n_steps is not None and len(self.run.steps) > self.n_steps:
            self.event = self.run.steps[-1]

    def starts(self) -> bool:
        """Says that work on it begins; False when it was cancelled, of which all who wait for it are told."""
        if self.started is None:
            self.started = self.future.set_running_or_notify_cancel()
        return self.started

    def finish(self, event: StepEvent | None = None, error: BaseException | None = None) -> None:
        """Calls `end`, and hands its answer to whoever waits."""
        if not self.starts() or self.future.done():
            return
        run, self.run, self.prefix = self.run, None, None  # who waits may keep the future; the run is not its business
        try:
            answer = self.end(run, event, error)
        except BaseException as problem:
            self.future.set_exception(told(problem))
            if not isinstance(problem, Exception):
                raise
        else:
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Ends it with a sentence for its visitor: a Refusal as it is, anything else as a step that failed.

        `Interrupted` is what the visitor asked for.
        """
        self.finish(error=without_frames(error if isinstance(error, Refusal | Interrupted) else failed_step(error)))

    def give_up(self) -> None:
        """The engine stops: whoever waits is woken."""
        self.run = self.prefix = None
        if self.future.cancel():
            self.starts()
        else:
            with suppress(Exception):  # it was running; a race with its own end does no harm
                self.future.set_exception(Refusal("engine.stopped"))
