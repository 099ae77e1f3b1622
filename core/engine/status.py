"""What the engine says about itself: who sits in the batch, what it costs, who waits. Snapshots; nobody's words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from core.engine.trace import Phase  # brings torch: a server that has not begun to compute answers without it


class Doing(StrEnum):
    """What a run is at."""

    DECODING = "decoding"
    PREFILLING = "prefilling"
    QUEUED = "queued"
    """It waits for memory."""
    RESTING = "resting"
    """It holds a cache and asks for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One run in the engine.

    Attributes:
        tag: its visitor, anonymous.
        model: the model's name.
        n_tokens: positions in its cache; while it is prefilled, those that are through the layers.
        n_prefix: positions its prefill has; 0 when it is not being prefilled.
        kv_bytes: bytes of the cached positions.
        held_bytes: bytes it takes: the cache in whole blocks and the queries kept with it.
        place: in the queue for memory, 1 is next; 0 when it does not wait there.
        tokens_per_s: what it got over the last seconds.
    """

    tag: str
    model: str
    doing: Doing
    n_tokens: int
    n_prefix: int
    kv_bytes: int
    held_bytes: int
    place: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """Decode passes of one batch size since the process began: how many, the median of the last ones, tokens/s."""

    batch: int
    n_passes: int
    step_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model's decode passes.

    Attributes:
        batch: runs in the newest pass, B; 0 when that is more than two seconds ago.
        step_s: seconds of that pass, from its first operator to the last run's record.
        tokens_per_s: of all its runs together, over the last seconds.
        weight_bytes: bytes of weights one pass reads, once for all of its runs.
        by_batch: what was measured for each B so far.
    """

    model: str
    batch: int
    step_s: float
    tokens_per_s: float
    weight_bytes: int
    by_batch: tuple[BatchPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """A measurement that has the engine to itself while one of its points runs."""

    name: str
    n_done: int
    n_points: int
    n_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The engine at one moment; one that has done nothing yet, unless said otherwise.

    Attributes:
        budget_bytes: what all caches together may take.
        promised_bytes: what the runs in it could still grow to.
        held_bytes: what they take now.
        n_queued: runs that wait for memory.
        n_restarts: how often the engine's thread died and was begun again.
        measuring: the measurement under way, if there is one.
    """

    seats: tuple[Seat, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    budget_bytes: int = 0
    promised_bytes: int = 0
    held_bytes: int = 0
    n_queued: int = 0
    n_restarts: int = 0
    measuring: Measuring | None = None


class Listener(Protocol):
    """Hears what happens in the engine, in its thread: for metrics and logs."""

    def stepped(self, model: str, phase: Phase, batch: int, seconds: float, n_tokens: int) -> None:
        """A decode pass of `batch` runs, or one run's prefill or recomputed prefix of `n_tokens` positions, is done."""
        ...

    def failed(self, model: str, error: BaseException) -> None:
        """A run's step raised something that is no Refusal."""
        ...

    def dropped(self, model: str, held_bytes: int) -> None:
        """A resting run's cache was given back."""
        ...

    def restarted(self, error: BaseException) -> None:
        """The engine's thread had died of `error` and has been begun again."""
        ...
