"""Slow memory that counts: what is loaded from it is a copy, what is stored to it is copied, and both are added up.

Nothing else here knows how much an attention should move: the figures come from the accesses themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Name = Literal["Q", "K", "V", "O", "S", "P", "l", "m"]
Head = tuple[int, int]
"""Sequence and query head."""


@dataclass(frozen=True, slots=True)
class Access:
    """Rows of one head, loaded or stored."""

    kind: Literal["load", "store"]
    name: Name
    rows: range
    n_elements: int


class SlowMemory:
    """Tensors [B, heads, n, width] by name. What a caller holds between two accesses lies in fast memory.

    Attributes:
        loaded, stored: elements of all heads so far.
        filled: elements that were there filled with a constant, which nobody counts as a store.
        accesses: those of the query head that is `followed`, in order.
    """

    def __init__(self, queries: Tensor, keys: Tensor, values: Tensor, *, followed: Head | None = None) -> None:
        """queries [B, h, n, d_h]; keys, values [B, n_kv, n, d_h], h a multiple of n_kv."""
        self._tensors: dict[Name, Tensor] = {"Q": queries, "K": keys, "V": values}
        self._followed = followed
        self.heads: list[Head] = [(b, h) for b in range(queries.shape[0]) for h in range(queries.shape[1])]
        self.loaded = self.stored = self.filled = 0
        self.accesses: list[Access] = []

    @property
    def n_tokens(self) -> int:
        """n."""
        return self._tensors["Q"].shape[2]

    @property
    def head_dim(self) -> int:
        """d_h."""
        return self._tensors["Q"].shape[3]

    def make(self, name: Name, width: int, fill: float | None = None) -> Tensor:
        """A tensor of so many numbers a query, [B, h, n, width]; all equal to `fill` where that is given."""
        queries = self._tensors["Q"]
        shape = (*queries.shape[:3], width)
        if fill is None:
            made = queries.new_empty(shape)
        else:
            made = queries.new_full(shape, fill)
            self.filled += made.numel()
        self._tensors[name] = made
        return made

    def drop(self, name: Name) -> None:
        """Gives a tensor back."""
        del self._tensors[name]

    def load(self, name: Name, head: Head, rows: range) -> Tensor:
        """Rows of a query head [len(rows), width]; of K and V those of the head that it shares."""
        loaded = self._place(name, head, rows).clone()
        self.loaded += loaded.numel()
        self._note("load", name, head, rows, loaded)
        return loaded

    def store(self, name: Name, head: Head, rows: range, values: Tensor) -> None:
        """Writes rows of a query head [len(rows), width]."""
        self._place(name, head, rows).copy_(values)
        self.stored += values.numel()
        self._note("store", name, head, rows, values)

    def follows(self, head: Head) -> bool:
        """Whether this is the head whose accesses are kept."""
        return head == self._followed

    def _place(self, name: Name, head: Head, rows: range) -> Tensor:
        tensor = self._tensors[name]
        sequence, query_head = head
        shared_by = self._tensors["Q"].shape[1] // tensor.shape[1]
        return tensor[sequence, query_head // shared_by, rows.start : rows.stop]

    def _note(self, kind: Literal["load", "store"], name: Name, head: Head, rows: range, moved: Tensor) -> None:
        if self.follows(head):
            self.accesses.append(Access(kind, name, rows, moved.numel()))


def later_keys(queries: range, keys: range, device: torch.device) -> Tensor | None:
    """Which keys come after their query [queries, keys]; None where none does."""
    if keys.stop - 1 <= queries.start:
        return None
    pairs = torch.ones(len(queries), len(keys), dtype=torch.bool, device=device)
    return pairs.triu(queries.start - keys.start + 1)
