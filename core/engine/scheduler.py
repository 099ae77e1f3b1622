"""What is computed next: decode steps that wait together as one pass, then one chunk of one prefix, in turn.

Everything here runs in the engine's thread, a `round` at a time; between rounds it takes up what came meanwhile. First
come, first served in each of its three lines: for memory, for a pass, for a chunk.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from core.engine.meters import Meters
from core.engine.prefix import PrefixPass
from core.engine.residents import Residents
from core.engine.run import Interrupted, Run
from core.engine.status import Listener
from core.engine.steps import decode_one_token
from core.engine.trace import StepEvent
from core.engine.turn import Turn
from core.model.load import LanguageModel
from core.refusal import Refusal

MOST_IN_A_PASS = 64


class Scheduler:
    """The turns of all visitors, from `add` until `Turn.finish`."""

    def __init__(self, residents: Residents, meters: Meters, listener: Listener) -> None:
        self._residents, self._meters, self._listener = residents, meters, listener
        self.queue: deque[Turn] = deque()  # for memory
        self._decodes: deque[Turn] = deque()
        self._prefixes: deque[Turn] = deque()
        self._behind: deque[Turn] = deque()  # an earlier turn of the same run: a run does one thing at a time
        self._in_hand: list[Turn] = []  # what is worked on: should the thread die, it died of one of these
        self.last_batch = 0

    @property
    def has_work(self) -> bool:
        """Whether a round would compute something."""
        return bool(self._decodes or self._prefixes) or any(not self._is_busy(turn.run) for turn in self._behind)

    @property
    def n_decodes(self) -> int:
        """Decode steps that wait for the next pass."""
        return len(self._decodes)

    @property
    def turns(self) -> list[Turn]:
        """All turns that are not finished, oldest first in each line; may be read from any thread."""
        lines = (self._in_hand, self._decodes, self._prefixes, self.queue, self._behind)
        return list(dict.fromkeys(turn for line in lines for turn in list(line)))

    def add(self, turn: Turn) -> None:
        """Takes a turn up; also one that `recover` returned, whose `begin` is not called again if it was through."""
        if turn.future.done():
            turn.starts()  # it was cancelled: those who wait are told
        else:
            self._handle(turn, self._begin)

    def round(self) -> bool:
        """One decode pass for each model that has steps waiting, then one chunk; False when there was nothing."""
        self._let_follow()
        self._let_in()
        worked = bool(self._decodes or self._prefixes)
        for model in {id(turn.run.model): turn.run.model for turn in self._decodes if turn.run}.values():
            if turns := self._take(model):
                self._decode(model, turns)
            self._in_hand = []
        if self._prefixes:
            self._handle(self._prefixes.popleft(), self._advance)
        return worked

    def recover(self) -> list[Turn]:
        """After the thread died: all turns that were not finished, for the next one to `add`.

        Every cache is dropped, since nobody knows what it holds: runs go on by a refill. A turn under which the thread
        has died twice is not tried again.
        """
        turns = [turn for turn in self.turns if turn.started is None or not turn.future.done()]
        for turn in self._in_hand:
            turn.retries += 1
        self._in_hand, self._behind = [], deque()
        self.queue, self._decodes, self._prefixes = deque(), deque(), deque()
        for run, _ in self._residents.places():
            run.settle()
            self._residents.let_go(run)
        for turn in turns:
            turn.prefix, turn.is_seated = None, False
        return sorted(turns, key=lambda turn: turn.run is None)  # whose `begin` died came last

    def _begin(self, turn: Turn) -> None:
        turn.began_again()
        turn.run = turn.run or turn.begin()
        if self._is_busy(turn.run) or any(earlier.run is turn.run for earlier in self._behind):
            self._behind.append(turn)  # until that one is finished
        else:
            self._go(turn)

    def _go(self, turn: Turn) -> None:
        """Into the line for memory, or for its work."""
        run = turn.run
        if run is None or (turn.steps and not turn.event and run.stopped):
            self._end(turn)
            return
        turn.n_steps = len(run.steps) if turn.steps else None
        if (self.queue and run not in self._residents) or not self._admit(turn):
            self.queue.append(turn)

    def _admit(self, turn: Turn) -> bool:
        """Lets a turn's run in, and the turn into the line for its kind of work."""
        run = turn.run
        assert run is not None
        run.check_interrupt()
        if not self._residents.admit(run, turn.tag):
            return False
        self._residents.turn_begins(run)
        turn.is_seated = True
        self._route(turn)
        return True

    def _route(self, turn: Turn) -> None:
        """To what it needs next: a pass over the prefix, a decode step, or nothing more."""
        if turn.wants_prefix and turn.run is not None:
            turn.prefix = PrefixPass(turn.run)
            self._prefixes.append(turn)
        elif turn.wants_step:
            self._decodes.append(turn)
        else:
            self._end(turn, turn.event)

    def _is_busy(self, run: Run | None) -> bool:
        """Whether a turn of this run is in one of the lines."""
        return run is not None and (self._residents.is_awaited(run) or any(turn.run is run for turn in self.queue))

    def _let_follow(self) -> None:
        """Those whose run was at work for an earlier turn, in their order."""
        for turn in list(self._behind):
            if not self._is_busy(turn.run):
                self._behind.remove(turn)
                self._handle(turn, self._go)

    def _let_in(self) -> None:
        """Those who wait for memory, in their order; who asked for an end is let go wherever they stand."""
        for turn in list(self.queue):
            if turn.future.cancelled() or (turn.run and turn.run.interrupted):
                self.queue.remove(turn)
                self._end(turn, error=Interrupted())
        while self.queue and self._handle(self.queue[0], self._admit) is not False:
            self.queue.popleft()

    def _take(self, model: LanguageModel) -> list[Turn]:
        """Those who decode next with this model, taken in hand; one under which the thread has died, alone."""
        left: deque[Turn] = deque()
        taken: list[Turn] = []
        for turn in self._decodes:
            is_full = len(taken) == MOST_IN_A_PASS or (taken and (turn.retries or taken[0].retries))
            if turn.run is None or turn.run.model is not model or is_full:
                left.append(turn)
            elif turn.wants_prefix or not turn.wants_step:  # steps were undone meanwhile
                self._handle(turn, self._route)
            elif self._starts(turn):
                taken.append(turn)
        self._in_hand, self._decodes = taken, left
        return taken

    def _decode(self, model: LanguageModel, turns: list[Turn]) -> None:
        """One pass for all of them. Should it fail, each alone: only those that fail by themselves hear of it."""
        started = time.perf_counter()
        n_steps = [len(run.steps) for run in _runs(turns)]
        try:
            events: list[StepEvent] = decode_one_token(model, _runs(turns))
        except Exception as error:
            for turn, run, before in zip(turns, _runs(turns), n_steps, strict=True):
                if len(run.steps) > before:
                    self._end(turn, run.steps[-1])
                elif len(turns) > 1:
                    self._decode(model, [turn])
                else:
                    self._fail(turn, error)
            return
        seconds = time.perf_counter() - started
        self.last_batch = len(turns)
        self._meters.decoded(model, len(turns), seconds)
        self._listener.stepped(model.name, events[0].phase, len(turns), seconds, len(turns))
        for turn, event in zip(turns, events, strict=True):
            self._end(turn, event)

    def _advance(self, turn: Turn) -> None:
        """One chunk of a prefix; behind the last one the step is done, or, after a refill, what was waiting for it."""
        prefix, run = turn.prefix, turn.run
        assert prefix is not None and run is not None
        if not self._starts(turn):
            return
        if turn.is_stale:
            run.settle()
            turn.prefix = None
            self._route(turn)
            return
        prefix.advance()
        if not prefix.done:
            self._prefixes.append(turn)
            return
        event, turn.prefix = prefix.finish(), None
        if event is None:
            self._route(turn)
            return
        self._listener.stepped(run.model.name, event.phase, 1, event.total_seconds, prefix.n_tokens)
        self._end(turn, event)

    def _starts(self, turn: Turn) -> bool:
        """Says that work on a turn begins; one that nobody waits for any more leaves its line."""
        if turn.starts():
            return True
        self._end(turn)
        return False

    def _handle(self, turn: Turn, work: Callable[[Turn], bool | None]) -> bool | None:
        """Whatever `work` raises is this turn's own end, and nobody else's."""
        self._in_hand, answer = [turn], None
        try:
            answer = work(turn)
        except Exception as error:
            self._fail(turn, error)
        self._in_hand = []
        return answer

    def _fail(self, turn: Turn, error: Exception) -> None:
        if turn.run is not None and not isinstance(error, Interrupted | Refusal):
            self._listener.failed(turn.run.model.name, error)
        self._end(turn, error=error)

    def _end(self, turn: Turn, event: StepEvent | None = None, error: BaseException | None = None) -> None:
        run = turn.run
        if run is not None and turn.is_seated:
            self._residents.turn_ends(run, event is not None)
            turn.is_seated = False
        if error is None:
            turn.finish(event)
        else:
            turn.fail(error)
        if run is not None and (run.cache is None or run.interrupted):
            self._residents.let_go(run)  # nothing comes of what it was promised


def _runs(turns: list[Turn]) -> list[Run]:
    return [turn.run for turn in turns if turn.run is not None]
