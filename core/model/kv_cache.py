"""The keys and values of one run: written once per position, read by every later step.

The cache belongs to one run and is handed down to the model; nothing else knows the position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.model.config import ModelConfig

BLOCK_TOKENS = 64


class KVCache:
    """Keys and values of all layers for one sequence, grown in blocks of `block_tokens` positions.

    A pass first reserves room (`reserve`), then writes layer by layer (`write`), then counts the new positions
    (`commit`). A pass that fails half-way has committed nothing, so the cache is as it was before.
    """

    def __init__(
        self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device, block_tokens: int = BLOCK_TOKENS
    ) -> None:
        self.config = config
        self.block_tokens = block_tokens
        self._n_tokens = 0
        empty = torch.empty(2 * config.n_kv_heads, 0, config.head_dim, dtype=dtype, device=device)
        # One tensor a layer, so that growing needs room for one more layer, not for a second cache.
        self._layers = [empty] * config.n_layers  # each (n_kv key heads, then n_kv value heads; position; head_dim)

    @property
    def n_tokens(self) -> int:
        """Positions whose keys and values are in the cache, in every layer."""
        return self._n_tokens

    @property
    def used_bytes(self) -> int:
        """Bytes of the cached positions: their share of the tensors as they are, summed over the layers."""
        return self.reserved_bytes // max(1, self.reserved_tokens) * self._n_tokens

    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated: whole blocks, used or not."""
        return sum(layer.nbytes for layer in self._layers)

    @property
    def reserved_tokens(self) -> int:
        """Positions that fit before the cache must grow."""
        return self._layers[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self._layers[0].dtype

    @property
    def device(self) -> torch.device:
        return self._layers[0].device

    def reserve(self, n_new: int) -> None:
        """Makes room for `n_new` more positions, in whole blocks, one layer after the other."""
        needed = self._n_tokens + n_new
        if needed <= self.reserved_tokens:
            return
        n_blocks = -(-needed // self.block_tokens)
        for index, old in enumerate(self._layers):
            # Zeros: attention reads whole blocks, and what has weight 0 must be a number.
            grown = old.new_zeros(old.shape[0], n_blocks * self.block_tokens, old.shape[2])
            grown[:, : self._n_tokens] = old[:, : self._n_tokens]
            self._layers[index] = grown

    def write(self, layer: int, keys_values: Tensor) -> Tensor:
        """Writes new positions [n_new, 2·n_kv, d_h] of one layer, key heads before value heads, behind the old ones.

        Returns all of the layer, old and new, as a view [2·n_kv, n, d_h].
        """
        n_new = keys_values.shape[0]
        storage = self._layers[layer]
        storage.narrow(1, self._n_tokens, n_new).copy_(keys_values.transpose(0, 1))
        return storage.narrow(1, 0, self._n_tokens + n_new)

    def next_place(self, layer: int) -> Tensor:
        """Where a layer's keys and values of the one next position go, behind what is cached: a view [2·n_kv, d_h]."""
        return self._layers[layer].select(1, self._n_tokens)

    def with_next(self, layer: int) -> Tensor:
        """All of a layer and its next position, keys and values apart: a view [2, n_kv, n + 1, d_h]."""
        return self.blocks(layer, self._n_tokens + 1)

    def blocks(self, layer: int, n_tokens: int) -> Tensor:
        """A layer's first `n_tokens` places, cached or not, keys and values apart: a view [2, n_kv, n_tokens, d_h]."""
        storage = self._layers[layer]
        return storage.view(2, self.config.n_kv_heads, *storage.shape[1:]).narrow(2, 0, n_tokens)

    def commit(self, n_new: int) -> None:
        """Counts `n_new` positions as cached: every layer has written them."""
        self._n_tokens += n_new

    def first(self, n_tokens: int) -> KVCache:
        """A cache of its own that holds the first `n_tokens` positions, copied."""
        copied = KVCache(self.config, dtype=self.dtype, device=self.device, block_tokens=self.block_tokens)
        copied.reserve(n_tokens)
        for layer, own in zip(copied._layers, self._layers, strict=True):
            layer[:, :n_tokens] = own[:, :n_tokens]
        copied.commit(n_tokens)
        return copied

    def truncate(self, n_tokens: int) -> None:
        """Forgets all positions from `n_tokens` on and gives whole unused blocks back."""
        if not 0 <= n_tokens <= self._n_tokens:
            raise ValueError(f"cannot truncate {self._n_tokens} positions to {n_tokens}")
        self._n_tokens = n_tokens
        n_blocks = -(-n_tokens // self.block_tokens)
        if n_blocks * self.block_tokens < self.reserved_tokens:
            self._layers = [layer[:, : n_blocks * self.block_tokens].clone() for layer in self._layers]

    def keys(self, layer: int) -> Tensor:
        """All cached keys of a layer, a view [n_kv, n, d_h]."""
        return self._layers[layer][: self.config.n_kv_heads, : self._n_tokens]

    def values(self, layer: int) -> Tensor:
        """All cached values of a layer, a view [n_kv, n, d_h]."""
        return self._layers[layer][self.config.n_kv_heads :, : self._n_tokens]

    def columns(self, start: int, end: int) -> Tensor:
        """Keys and values of positions start … end−1 in all layers: a copy [L, 2, n_kv, end − start, d_h]."""
        stacked = torch.stack([layer[:, start:end] for layer in self._layers])  # (L, 2·n_kv, end − start, d_h)
        n_heads, width = self.config.n_kv_heads, self.config.head_dim
        return stacked.view(len(self._layers), 2, n_heads, end - start, width)
