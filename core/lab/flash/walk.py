"""The record of how one head's attention walks over the n×n square: what a picture plays, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from core.lab.flash.slow_memory import Access, SlowMemory


@dataclass(frozen=True, slots=True)
class RowState:
    """The online softmax of one row: the running maximum, the running sum, and by what the older sum was scaled."""

    row: int
    maximum: float
    total: float
    rescaled: float


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One tile, or one strip of a plain pass.

    Attributes:
        accesses: what it loaded and stored, in order.
        loaded, stored: elements of this head, up to its end.
        state: of the tile's last query row; None in plain attention, which keeps none.
    """

    query_rows: range
    key_rows: range
    accesses: tuple[Access, ...]
    loaded: int
    stored: int
    state: RowState | None


class Walker:
    """Makes the record while an attention runs: called at the end of every tile of the head that memory follows."""

    def __init__(self, memory: SlowMemory) -> None:
        self._memory, self._seen = memory, 0
        self._loaded = self._stored = 0
        self.steps: list[WalkStep] = []

    def step(self, query_rows: range, key_rows: range, state: tuple[Tensor, Tensor, Tensor] | None = None) -> None:
        """`state`: the tile's running maxima, sums and factors, [r, 1] each."""
        accesses = tuple(self._memory.accesses[self._seen :])
        self._seen += len(accesses)
        self._loaded += sum(access.n_elements for access in accesses if access.kind == "load")
        self._stored += sum(access.n_elements for access in accesses if access.kind == "store")
        last = None
        if state is not None:
            last = RowState(query_rows.stop - 1, *(float(part[-1, 0]) for part in state))
        self.steps.append(WalkStep(query_rows, key_rows, accesses, self._loaded, self._stored, last))
