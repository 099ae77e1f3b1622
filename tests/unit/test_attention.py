"""Attention over a cache against the definition, written out: who sees whom, and with what weight."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from core.estimate.flops import attended_pairs
from core.model.attention import (
    AttentionWithin,
    attend,
    attend_within,
    attention_weights,
    ends_aligned_mask,
    new_workspaces,
)
from core.model.kv_cache import KVCache
from tests.runs import MADE_UP

CPU = torch.device("cpu")

# Query heads, KV heads: multi-head, grouped, multi-query, and a group that is no power of two.
HEADS = [(4, 4), (4, 2), (4, 1), (9, 3)]
# New positions, all positions: decode, whole prompts, second chunks.
SIZES = [(1, 1), (1, 8), (2, 5), (5, 5), (7, 16), (16, 16)]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_by_definition(queries: Tensor, keys: Tensor) -> Tensor:
    """[h, n_new, n] in float64, one query head and one position at a time."""
    n_new, h, d_h = queries.shape
    n_kv, n, _ = keys.shape
    weights = torch.zeros(h, n_new, n, dtype=torch.float64)
    for head in range(h):
        for i in range(n_new):
            seen = n - n_new + i + 1
            scores = keys[head // (h // n_kv), :seen].double() @ queries[i, head].double() / d_h**0.5
            weights[head, i, :seen] = scores.softmax(0)
    return weights


@pytest.mark.parametrize(("n_new", "n"), SIZES)
@pytest.mark.parametrize(("h", "n_kv"), HEADS)
def test_equals_the_definition(h: int, n_kv: int, n_new: int, n: int) -> None:
    queries, keys_values = random(n_new, h, 6, seed=1), random(2 * n_kv, n, 6, seed=2)
    keys, values = keys_values[:n_kv], keys_values[n_kv:]
    weights = weights_by_definition(queries, keys)
    gathered = torch.einsum("hqk,hkd->qhd", weights, values.double().repeat_interleave(h // n_kv, 0))
    torch.testing.assert_close(attend(queries, keys_values).double(), gathered, rtol=0, atol=1e-6)
    found = attention_weights(queries, keys)
    assert found.dtype == torch.float32 and found.shape == (h, n_new, n)
    torch.testing.assert_close(found.double(), weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.sum(-1), torch.ones(h, n_new), rtol=0, atol=1e-6)
    assert torch.equal(found == 0, weights == 0)  # what lies to the right has weight exactly 0


@pytest.mark.parametrize(("n_new", "n", "seen"), [(1, 8, [8]), (2, 5, [4, 5]), (3, 3, [1, 2, 3]), (4, 9, [6, 7, 8, 9])])
def test_the_mask_is_aligned_to_the_end(n_new: int, n: int, seen: list[int]) -> None:
    """B03: with the identity as values the output of a query is its row of weights."""
    identity = torch.eye(n, 10)[None]  # (1, n, d_h)
    keys = random(1, n, 10, seed=3)
    rows = attend(random(n_new, 2, 10, seed=4), torch.cat([keys, identity]))  # (n_new, 2, d_h)
    for head in range(2):
        assert [(row > 0).sum().item() for row in rows[:, head]] == seen
        assert all((row[:count] > 0).all() for row, count in zip(rows[:, head], seen, strict=True))


@pytest.mark.parametrize(("n_new", "n"), SIZES)
def test_the_mask_counts_the_pairs(n_new: int, n: int) -> None:
    assert ends_aligned_mask(n_new, n, CPU).sum().item() == attended_pairs(n_new, n - n_new)


def test_pairs_of_a_prompt_do_not_depend_on_its_chunks() -> None:
    """B04: 136 for 16 positions, whole, as 7 + 9 and one by one."""
    assert attended_pairs(16, 0) == 136
    assert attended_pairs(7, 0) + attended_pairs(9, 7) == 136
    assert sum(attended_pairs(1, past) for past in range(16)) == 136


@pytest.mark.parametrize(("h", "n_kv"), HEADS)
def test_whole_sequences_at_once(h: int, n_kv: int) -> None:
    queries, keys_values = random(2, 5, h, 6, seed=5), random(2, 5, 2 * n_kv, 6, seed=6)
    together = attend_within(queries, keys_values)
    for row in range(2):
        alone = attend(queries[row], keys_values[row].transpose(0, 1))
        torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_rows_of_whole_sequences(causal: bool) -> None:
    """A pass's rows are its sequences one after another; without the mask each query sees all of its own."""
    queries, keys_values = torch.randn(2, 5, 4, 6), torch.randn(2, 5, 4, 6)
    rows = AttentionWithin(2, causal=causal).attend(0, queries.flatten(0, 1), keys_values.flatten(0, 1))
    keys, values = keys_values.transpose(1, 2).chunk(2, 1)  # (B, n_kv, n, d_h) each
    for index in range(2):
        heads = queries[index].transpose(0, 1)  # (h, n, d_h)
        scores = heads @ keys[index].repeat_interleave(2, 0).mT * 6**-0.5
        if causal:
            scores = scores.masked_fill(~ends_aligned_mask(5, 5, scores.device), float("-inf"))
        expected = (scores.softmax(-1) @ values[index].repeat_interleave(2, 0)).transpose(0, 1)
        torch.testing.assert_close(rows[5 * index : 5 * index + 5], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("n_new", "n"), [(1, 8), (2, 5), (5, 5)])
def test_a_half_precision_cache_is_read_exactly(dtype: torch.dtype, n_new: int, n: int) -> None:
    """The queries and the sums stay in fp32: nothing is rounded but what the cache holds."""
    queries, keys_values = random(n_new, 4, 8, seed=6), random(4, n, 8, seed=7).to(dtype)
    room = torch.full((4, n, 8), float("nan"))  # what is left in it from the layer before must not matter
    attended = attend(queries, keys_values, room)
    assert attended.dtype == torch.float32
    assert torch.equal(attended, attend(queries, keys_values.float()))
    weights = attention_weights(queries.to(dtype), keys_values[:2])
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, n_new), rtol=0, atol=1e-6)


def test_rooms_for_converting_fit_their_caches() -> None:
    """One room serves runs of different lengths in turn; none is made where nothing is converted."""
    caches = [KVCache(MADE_UP, dtype=torch.float16, device=CPU) for _ in range(2)]
    caches[1].reserve(9)
    caches[1].commit(9)
    rooms = new_workspaces(caches, 3, torch.float32)
    assert [None if room is None else (tuple(room.shape), room.dtype) for room in rooms] == [
        ((4, 3, 6), torch.float32),
        ((4, 12, 6), torch.float32),
    ]
    assert new_workspaces(caches, 1, torch.float16) == [None, None]
    assert new_workspaces([], 1, torch.float32) == []
