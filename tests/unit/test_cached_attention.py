"""Many sequences attending in one product get what each gets alone, and nobody's numbers reach a neighbour."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.model.attention import attend
from core.model.cached_attention import CachedAttention
from core.model.config import ModelConfig
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from tests.runs import MADE_UP

CPU = torch.device("cpu")
# Positions before the new one: across the blocks' borders, far apart, all alike, and each in a class of its own.
LENGTHS = [[62, 63, 64, 65], [0, 699, 3, 128, 640], [9, 9, 9], [0, 100, 300, 700], [63, 63, 64, 64, 700, 5]]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def filled(config: ModelConfig, n_tokens: int, dtype: torch.dtype, seed: int) -> KVCache:
    """A cache of so many random positions with room for one more; what is unwritten in it must not be seen.

    It is NaN, but in fp32: there a single cache is read where it lies, and what it reserves is always a number.
    """
    cache = KVCache(config, dtype=dtype, device=CPU)
    cache.reserve(n_tokens + 1)
    for layer in range(config.n_layers):
        cache.next_place(layer)[:] = 0  # it exists
        cache._layers[layer].fill_(1e30 if dtype == torch.float32 else float("nan"))
        if n_tokens:
            cache.write(layer, random(n_tokens, 2 * config.n_kv_heads, config.head_dim, seed=seed + layer))
    cache.commit(n_tokens)
    return cache


@pytest.fixture(autouse=True)
def fresh_memory_is_nan() -> object:
    """What torch.empty gives is filled with NaN, so that whatever is read before it is written shows."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("h", "n_kv"), [(4, 4), (4, 2), (4, 1), (9, 3)])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_together_equals_alone(lengths: list[int], h: int, n_kv: int, dtype: torch.dtype) -> None:
    config = replace(MADE_UP, n_heads=h, n_kv_heads=n_kv)
    together = [filled(config, n, dtype, seed=10 * row) for row, n in enumerate(lengths)]
    alone = [filled(config, n, dtype, seed=10 * row) for row, n in enumerate(lengths)]
    attention = CachedAttention(together, 1, torch.float32)
    for layer in range(config.n_layers):
        queries = random(len(lengths), h, 6, seed=100 + layer)
        keys_values = random(len(lengths), 2 * n_kv, 6, seed=200 + layer)
        found = attention.attend(layer, queries, keys_values)
        assert found.shape == queries.shape and found.dtype == torch.float32
        for row, cache in enumerate(alone):
            expected = attend(queries[row : row + 1], cache.write(layer, keys_values[row : row + 1]).float())
            torch.testing.assert_close(found[row : row + 1], expected, rtol=0, atol=2e-6)
    for one, other in zip(together, alone, strict=True):
        one.commit(1)
        other.commit(1)
        for layer in range(config.n_layers):
            assert torch.equal(one.keys(layer), other.keys(layer))
            assert torch.equal(one.values(layer), other.values(layer))


def test_a_neighbour_of_numbers_that_are_none_does_no_harm() -> None:
    """One run's cache holds NaN: its own row is lost, the others' are as without it."""
    lengths = [40, 30, 50]
    caches = [filled(MADE_UP, n, torch.float16, seed=n) for n in lengths]
    broken = [filled(MADE_UP, n, torch.float16, seed=n) for n in lengths]
    broken[2]._layers[0].fill_(float("nan"))
    queries, keys_values = random(3, 4, 6, seed=1), random(3, 4, 6, seed=2)
    sound = CachedAttention(caches, 1, torch.float32).attend(0, queries, keys_values)
    found = CachedAttention(broken, 1, torch.float32).attend(0, queries, keys_values)
    assert torch.equal(found[:2], sound[:2]) and found[2].isnan().all()


def test_the_order_of_the_sequences_does_not_matter() -> None:
    lengths = [700, 5, 64, 63, 90, 6]
    queries, keys_values = random(6, 4, 6, seed=1), random(6, 4, 6, seed=2)

    def rows_in(order: list[int]) -> Tensor:
        caches = [filled(MADE_UP, lengths[row], torch.float16, seed=row) for row in order]
        return CachedAttention(caches, 1, torch.float32).attend(1, queries[order], keys_values[order])

    order = [3, 0, 5, 1, 4, 2]
    torch.testing.assert_close(rows_in(order), rows_in(list(range(6)))[order], rtol=0, atol=1e-6)


def test_several_new_positions_each_attend_alone() -> None:
    caches = [filled(MADE_UP, n, torch.float32, seed=n) for n in (3, 70)]
    twins = [filled(MADE_UP, n, torch.float32, seed=n) for n in (3, 70)]
    for cache in (*caches, *twins):
        cache.reserve(2)
    queries, keys_values = random(4, 4, 6, seed=1), random(4, 4, 6, seed=2)
    found = CachedAttention(caches, 2, torch.float32).attend(0, queries, keys_values)
    for row, cache in enumerate(twins):
        rows = slice(2 * row, 2 * row + 2)
        assert torch.equal(found[rows], attend(queries[rows], cache.write(0, keys_values[rows])))


def test_no_sequence_is_padded_to_more_than_twice_its_blocks() -> None:
    lengths = list(range(0, 20 * BLOCK_TOKENS, 31))
    caches = [filled(replace(MADE_UP, n_layers=1), n, torch.float16, seed=n) for n in lengths]
    for part in CachedAttention(caches, 1, torch.float32)._parts:
        blocks = [cache.n_tokens // BLOCK_TOKENS + 1 for cache in getattr(part, "_caches", [])]
        assert not blocks or max(blocks) <= 2 * min(blocks)
