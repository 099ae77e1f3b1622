"""What a sweep goes through, in which order, and one row of what it finds. No torch here: plans are checked without."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from core.lab.spread import spread
from core.refusal import Refusal

Fill = Literal["prefill", "fast"]
FILLS: tuple[Fill, ...] = ("prefill", "fast")
"""How caches come to hold n − 1 positions: by passes of the model over real text, or by writing random numbers into
them. A decode step reads as many bytes and multiplies as many numbers either way."""
LEAST_CONTEXT = 2
"""One position in the cache, and the new one."""
MOST_VALUES, MOST_REPEATS = 64, 1000


class Spot(NamedTuple):
    """Where one row is measured: a context, which counts the new token, a batch, and which repeat."""

    context: int
    batch: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Contexts × batches × repeats. Raises Refusal for values that make no sweep."""

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int
    fill: Fill = "prefill"

    def __post_init__(self) -> None:
        for name, values, least in (("contexts", self.contexts, LEAST_CONTEXT), ("batches", self.batches, 1)):
            if not 1 <= len(values) <= MOST_VALUES or len(set(values)) < len(values) or min(values) < least:
                raise Refusal("sweep.values", name=name, least=least, most=MOST_VALUES)
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise Refusal("sweep.repeats", most=MOST_REPEATS)

    @property
    def most_context(self) -> int:
        """The longest."""
        return max(self.contexts)

    @property
    def most_batch(self) -> int:
        """The largest."""
        return max(self.batches)

    def spots(self) -> Iterator[Spot]:
        """Every spot once. Each repeat goes through all of them, one upwards and the next downwards, so that a machine
        that grows slower or faster meanwhile does so for short and long contexts alike."""
        rising = [(context, batch) for context in sorted(self.contexts) for batch in sorted(self.batches)]
        for repeat in range(self.repeats):
            for context, batch in reversed(rising) if repeat % 2 else rising:
                yield Spot(context, batch, repeat)

    def n_missing(self, measured: Set[Spot]) -> int:
        """How many spots are not `measured`. None is made for it: a plan out of a file may have millions."""
        n_there = sum(
            spot.context in self.contexts and spot.batch in self.batches and spot.repeat < self.repeats
            for spot in measured
        )
        return len(self.contexts) * len(self.batches) * self.repeats - n_there


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """What was measured at one spot.

    Attributes:
        kv_bytes_formula: M_KV of the batch with n positions in each cache.
        kv_bytes_measured: of the caches' tensors, the share of the positions that are in them.
        decode_step_s: seconds of the model, the median of some steps from the same caches.
        flops_chapter, flops_exact: of the step, the whole batch.
        bytes_read: weights once, and every sequence's cache: what the step must read at least.
        peak_memory_bytes: the most the device had given out, or on a CPU the process had taken; None where unknown.
        disturbed: whether other programs used the cores, even at the last try; None where the system does not say.
    """

    context: int
    batch: int
    repeat: int
    kv_bytes_formula: int
    kv_bytes_measured: int
    decode_step_s: float
    flops_chapter: int
    flops_exact: int
    bytes_read: int
    peak_memory_bytes: int | None = None
    disturbed: bool | None = None

    @property
    def spot(self) -> Spot:
        """Where it was measured."""
        return Spot(self.context, self.batch, self.repeat)

    @property
    def kv_gap_bytes(self) -> int:
        """Measured less formula."""
        return self.kv_bytes_measured - self.kv_bytes_formula


@dataclass(frozen=True, slots=True)
class Cell:
    """All repeats at one context and batch: the middle of their seconds, and where the middle half of them lies.

    Repeats that other programs disturbed count only where all of them were; `n_used` is how many count.
    """

    context: int
    batch: int
    n_repeats: int
    n_used: int
    median_s: float
    first_quartile_s: float
    third_quartile_s: float
    kv_gap_bytes: int
    row: SweepRow


def cells(rows: list[SweepRow]) -> list[Cell]:
    """Rows put together by context and batch, both rising. The gap is the one farthest from 0."""
    grouped: dict[tuple[int, int], list[SweepRow]] = {}
    for row in rows:
        grouped.setdefault((row.context, row.batch), []).append(row)
    made = []
    for (context, batch), of_cell in sorted(grouped.items()):
        quiet = [row for row in of_cell if not row.disturbed] or of_cell
        seconds = [row.decode_step_s for row in quiet]
        gap = max((row.kv_gap_bytes for row in of_cell), key=abs)
        made.append(Cell(context, batch, len(of_cell), len(quiet), *spread(seconds), gap, of_cell[0]))
    return made
