"""Copies of a cache in which columns are other than they were."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.lab.lane import fill
from core.model.kv_cache import KVCache
from core.model.transformer import Transformer


def recomputed(transformer: Transformer, cache: KVCache, begin: int, ids: Sequence[int]) -> KVCache:
    """The first `begin` columns, and behind them those of `ids`, computed anew in one pass."""
    made = cache.first(begin)
    fill(transformer, ids, made)
    return made


def with_column_of(cache: KVCache, other: KVCache, position: int) -> KVCache:
    """The same cache but for one column, which is another cache's."""
    made = cache.first(cache.n_tokens)
    with torch.inference_mode():
        for layer in range(cache.config.n_layers):
            made.keys(layer)[:, position] = other.keys(layer)[:, position]
            made.values(layer)[:, position] = other.values(layer)[:, position]
    return made


def with_zeros(cache: KVCache, begin: int, end: int) -> KVCache:
    """The same cache with keys and values 0 in columns begin … end−1."""
    made = cache.first(cache.n_tokens)
    with torch.inference_mode():
        for layer in range(cache.config.n_layers):
            made.keys(layer)[:, begin:end] = 0
            made.values(layer)[:, begin:end] = 0
    return made


def without(cache: KVCache, begin: int, end: int) -> KVCache:
    """The other columns, moved together; the keys stay rotated as they were."""
    made = cache.first(begin)
    n_behind = cache.n_tokens - end
    made.reserve(n_behind)
    with torch.inference_mode():
        for layer in range(cache.config.n_layers):
            behind = torch.cat([cache.keys(layer)[:, end:], cache.values(layer)[:, end:]])  # (2·n_kv, n_behind, d_h)
            made.write(layer, behind.transpose(0, 1))
    made.commit(n_behind)
    return made
