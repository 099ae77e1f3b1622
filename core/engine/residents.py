"""Who holds memory: every run that is in the engine has a promise of all that it can still grow to.

A run is let in only when its promise fits the budget, so one that is in never has to stop for want of memory. What a
run was promised is free again the moment the run is gone, whoever let go of it; a resting run's cache is dropped when
somebody waits for its place, or after a while.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from core.engine.meters import RATE_SECONDS
from core.engine.run import Run
from core.estimate.kv import kv_bytes
from core.refusal import Refusal

KEPT_STEPS = 128
REST_SECONDS = 5.0
"""A run that was asked for nothing for so long may be dropped when others wait; slow players pause a second."""
IDLE_SECONDS = 180.0


def most_bytes(run: Run) -> int:
    """What a run can grow to: its cache in whole blocks at its last step, and the queries kept with it.

    Without a cache of its own the same cache lives while its prefix is recomputed.
    """
    model, config = run.model, run.config
    cache = model.transformer.new_cache() if run.cache is None else run.cache
    n_tokens = min(max(len(run.prompt_ids) + config.max_new, len(run.ids)), model.config.context_limit)
    n_reserved = -(-n_tokens // cache.block_tokens) * cache.block_tokens
    promised = int(kv_bytes(model.shape, n_tokens=n_reserved, dtypes=model.kv_dtypes))
    if run.cache is not None and config.record.queries:
        width = model.config.n_layers * model.config.n_heads * model.config.head_dim
        n_steps = max(config.max_new, len(run.steps), 1)  # the prefill keeps its query also where no token is asked for
        promised += n_steps * width * cache.dtype.itemsize
    return promised


@dataclass(slots=True)
class Place:
    """What one run was promised, since when it rests, and when it stepped lately."""

    tag: str
    n_bytes: int
    used_at: float
    n_turns: int = 0
    stepped_at: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))

    def tokens_per_s(self, now: float) -> float:
        """Steps of the last seconds, a second."""
        lately = list(self.stepped_at)
        # Who steps so fast that not all of these steps were kept is judged by those that were.
        seconds = min(RATE_SECONDS, now - lately[0]) if len(lately) == KEPT_STEPS else RATE_SECONDS
        return sum(1 for at in lately if now - at < RATE_SECONDS) / seconds if seconds else 0.0


class Residents:
    """The runs that were let in, and what the budget still has. May be read from any thread."""

    def __init__(
        self,
        budget_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        dropped: Callable[[Run, int], None] = lambda run, n_bytes: None,
    ) -> None:
        """`budget_bytes` is asked once, when it is first needed.

        `dropped` hears of every resting run whose cache is given back, and of how many bytes.
        """
        self._ask_budget, self._clock, self._on_drop = budget_bytes, clock, dropped
        self._budget_bytes: int | None = None
        self._places: WeakKeyDictionary[Run, Place] = WeakKeyDictionary()
        self._held_aside = 0
        self._lock = Lock()

    @property
    def budget_bytes(self) -> int:
        """What all of them together may be promised."""
        with self._lock:
            if self._budget_bytes is None:
                self._budget_bytes = self._ask_budget()
            return self._budget_bytes

    @property
    def promised_bytes(self) -> int:
        """Everything that was promised."""
        return sum(place.n_bytes for _, place in self.places()) + self._held_aside

    @property
    def held_bytes(self) -> int:
        """Everything that is taken."""
        return sum(run.held_bytes for run, _ in self.places()) + self._held_aside

    def places(self) -> list[tuple[Run, Place]]:
        """All runs that are in, with their places."""
        with self._lock:
            # By way of the references: a run that goes in another thread meanwhile would disturb walking the places.
            runs = [run for run in (reference() for reference in self._places.keyrefs()) if run is not None]
            return [(run, place) for run in runs if (place := self._places.get(run)) is not None]

    def __contains__(self, run: Run) -> bool:
        with self._lock:
            return run in self._places

    def admit(self, run: Run, tag: str) -> bool:
        """Whether the run is in, or could be let in, dropping runs that rest where that helps.

        Raises Refusal for one that the whole budget could not hold.
        """
        if run in self:
            return True
        needed = most_bytes(run)
        if needed > self.budget_bytes:
            raise Refusal("engine.run_over_budget", needed=needed / 2**20, budget=self.budget_bytes / 2**20)
        if not self._make_room(needed):
            return False
        with self._lock:
            self._places[run] = Place(tag, needed, self._clock())
        return True

    def is_awaited(self, run: Run) -> bool:
        """Whether somebody waits for it."""
        return (place := self._place(run)) is not None and place.n_turns > 0

    def turn_begins(self, run: Run) -> None:
        """Somebody waits for this run: it is not dropped meanwhile."""
        if (place := self._place(run)) is not None:
            place.n_turns += 1

    def turn_ends(self, run: Run, stepped: bool) -> None:
        """Nobody waits for it any more: it begins to rest."""
        if (place := self._place(run)) is not None:
            place.n_turns -= 1
            place.used_at = self._clock()
            if stepped:
                place.stepped_at.append(place.used_at)

    def let_go(self, run: Run) -> None:
        """Drops a run's cache and takes the promise back; the run keeps its tokens and is let in when asked for."""
        with self._lock:
            self._places.pop(run, None)
        run.drop_cache()

    def sweep(self) -> int:
        """Lets go of what has rested too long; returns how many bytes that gave back."""
        return sum(self._dropped(run) for run, _ in self._resting(IDLE_SECONDS))

    @contextmanager
    def aside(self, n_bytes: int) -> Iterator[None]:
        """Keeps so many bytes for something that is no run. Raises Refusal when they are not free."""
        if not self._make_room(n_bytes):
            free = max(0, self.budget_bytes - self.promised_bytes)
            raise Refusal("engine.no_room_aside", needed=n_bytes / 2**20, free=free / 2**20)
        self._held_aside += n_bytes
        try:
            yield
        finally:
            self._held_aside -= n_bytes

    def _place(self, run: Run) -> Place | None:
        with self._lock:
            return self._places.get(run)

    def _make_room(self, n_bytes: int) -> bool:
        """Whether so much is free, or becomes free when runs that rest are dropped, longest rest first."""
        resting = iter(self._resting(REST_SECONDS))
        while self.promised_bytes + n_bytes > self.budget_bytes:
            longest = next(resting, None)
            if longest is None:
                return False
            self._dropped(longest[0])
        return True

    def _resting(self, seconds: float) -> list[tuple[Run, Place]]:
        """Runs that nobody waits for since so long, longest first; one without a cache, or at its end, at once."""
        latest = self._clock() - seconds
        resting = [
            (run, place)
            for run, place in self.places()
            if not place.n_turns and (place.used_at <= latest or run.cache is None or run.interrupted)
        ]
        return sorted(resting, key=lambda pair: pair[1].used_at)

    def _dropped(self, run: Run) -> int:
        given_back = run.held_bytes
        self.let_go(run)
        self._on_drop(run, given_back)
        return given_back
