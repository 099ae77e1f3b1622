"""Attention of one pass over the caches of its sequences: whole chunks each on its own, single positions side by side.

A pass of one new position each (decoding together) would spend most of its time on small operators if it went from one
sequence to the next, so sequences of similar length are laid out side by side, padded to whole blocks. A sequence
decodes through the same operators alone: on a CPU what it gets is the same to the last bit, whoever lies beside it,
where the products around it give that too (`core.model.products`). (Whole blocks, because a product's last columns are
computed in another order than a full group of them.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor

from core.model.attention import attend, new_workspaces
from core.model.kv_cache import BLOCK_TOKENS, KVCache


class _Part(Protocol):
    """Some sequences of a pass."""

    n_rows: int

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor: ...


class CachedAttention:
    """Writes one pass's new keys and values into the caches of its B sequences and attends to all that is in them.

    It is made once a pass, after the caches have reserved room for `n_new` positions each. `dtype`: of the activations.
    """

    def __init__(self, caches: Sequence[KVCache], n_new: int, dtype: torch.dtype, padding: int = BLOCK_TOKENS) -> None:
        """Single positions attend to so many that `padding` divides it; 1 is for torch's counter to count."""
        self._order: Tensor | None = None  # rows as the parts want them, and as they came
        self._parts: list[_Part]
        if n_new > 1:
            rooms = new_workspaces(caches, n_new, dtype)
            self._parts = [_Alone(cache, n_new, room) for cache, room in zip(caches, rooms, strict=True)]
            return
        rows = sorted(range(len(caches)), key=lambda row: _length_class(caches[row]))
        groups = [list(group) for _, group in groupby(rows, key=lambda row: _length_class(caches[row]))]
        self._parts = [Together([caches[row] for row in group], dtype, padding) for group in groups]
        if rows != sorted(rows):
            self._order = torch.tensor(rows, device=caches[0].device)
            self._back = self._order.argsort()

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """queries [R, h, d_h] over cached and these new keys, then values [R, 2·n_kv, d_h] → gathered [R, h, d_h]."""
        if len(self._parts) == 1:
            return self._parts[0].attend(layer, queries, keys_values)
        if self._order is not None:
            queries, keys_values = queries[self._order], keys_values[self._order]
        sizes = [part.n_rows for part in self._parts]
        parts = zip(self._parts, queries.split(sizes), keys_values.split(sizes), strict=True)
        attended = torch.cat([part.attend(layer, q, kv) for part, q, kv in parts])
        return attended if self._order is None else attended[self._back]


def _length_class(cache: KVCache) -> int:
    """Which sequences are laid out together: one block, two, up to four, up to eight … so none is padded to more than
    twice its blocks."""
    return (cache.n_tokens // BLOCK_TOKENS).bit_length()


class _Alone:
    """One sequence with any number of new positions."""

    def __init__(self, cache: KVCache, n_new: int, room: Tensor | None) -> None:
        self.n_rows, self._cache, self._room = n_new, cache, room

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        return attend(queries, self._cache.write(layer, keys_values), self._room)


class Together:
    """B sequences with one new position each, of lengths n_1 … n_B (the new one included), padded to whole
    blocks of the longest.

    One layer of all of them is copied side by side and converted to the activations' dtype on the way. The padding is
    zero and stays so, because weight 0 times what an unwritten cell holds could be NaN; the mask gives it weight 0.
    Copying pays for fp32 caches, too: 16 sequences of 80 positions take 8 ms a pass, one after another 16. A single
    cache of the activations' own dtype is read where it lies.
    """

    def __init__(self, caches: Sequence[KVCache], dtype: torch.dtype, padding: int) -> None:
        config, device = caches[0].config, caches[0].device
        self.n_rows, self._caches = len(caches), caches
        self._n_kv, self._group, self._width = config.n_kv_heads, config.n_heads // config.n_kv_heads, config.head_dim
        lengths = [cache.n_tokens + 1 for cache in caches]
        n = -(-max(lengths) // padding) * padding
        beyond = torch.arange(n, device=device) >= torch.tensor(lengths, device=device)[:, None]  # (B, n)
        mask = torch.zeros(beyond.shape, dtype=dtype, device=device).masked_fill_(beyond, float("-inf"))
        # (B, n) → (B·n_kv, g, n): the same for each KV head, and for the g query heads that share it
        self._mask = mask.repeat_interleave(self._n_kv, 0)[:, None].expand(-1, self._group, -1)
        self._n = n
        self._room: Tensor | None = None  # (2, B·n_kv, n, d_h)
        if len(caches) > 1 or caches[0].dtype != dtype:
            room = torch.zeros(2, len(caches), self._n_kv, n, self._width, dtype=dtype, device=device)
            self._places = [room[:, row, :, :length] for row, length in enumerate(lengths)]
            self._room = room.flatten(1, 2)

    @property
    def converts(self) -> bool:
        """Whether keys and values are copied into a room of their own before they are read."""
        return self._room is not None

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        self.write(layer, keys_values)
        keys, values = self.read(layer)
        return self.gather(self.score(queries, keys).softmax(-1), values)

    def write(self, layer: int, keys_values: Tensor) -> None:
        """Each row's new keys, then values [B, 2·n_kv, d_h] go behind what its cache holds."""
        torch._foreach_copy_([cache.next_place(layer) for cache in self._caches], keys_values.unbind())

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all sequences, [B·n_kv, n, d_h] each."""
        if self._room is None:
            keys, values = self._caches[0].blocks(layer, self._n).unbind()
            return keys, values
        torch._foreach_copy_(self._places, [cache.with_next(layer) for cache in self._caches])
        return self._room[0], self._room[1]

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries [B, h, d_h] with keys [B·n_kv, n, d_h]: [B·n_kv, g, n], −∞ beyond each sequence."""
        grouped = queries.reshape(-1, self._group, self._width)  # (B, h, d_h) → (B·n_kv, g, d_h)
        return torch.baddbmm(self._mask, grouped, keys.mT, alpha=self._width**-0.5)

    def gather(self, weights: Tensor, values: Tensor) -> Tensor:
        """Values [B·n_kv, n, d_h] added up by the softmax's weights [B·n_kv, g, n]: [B, h, d_h]."""
        return torch.bmm(weights, values).view(self.n_rows, -1, self._width)
