"""What must hold for the cache and for memory, whatever the model: tried on random ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.estimate.dtypes import DTYPES, KvDtypes, Part, WeightDtypes
from core.estimate.fit import fit, max_batch, max_context
from core.estimate.kv import kv_bytes, kv_bytes_per_token, kv_derivation
from core.estimate.shape import Attention, ModelShape
from core.estimate.weights import parameters, weight_bytes, weight_bytes_read, weights
from tests.unit.published import cache, cache_only, dense, idle_layers, mixed
from tests.unit.random_shapes import (
    batches,
    fast,
    grouped_attention,
    kv_formats,
    lengths,
    shapes,
    weight_formats,
)

F32, BF16 = DTYPES["f32"], DTYPES["bf16"]
ranks = st.integers(1, 7)
pages = st.integers(1, 20)
MATRIX_PARTS: tuple[Part, ...] = ("input_table", "positions", "attention", "feed_forward", "experts", "head")


@fast
@given(shapes(), lengths, batches, kv_formats, ranks, pages, st.data())
def test_the_cache_adds_up_over_layers(
    shape: ModelShape, n: int, batch: int, dtypes: KvDtypes, n_ranks: int, page: int, data: st.DataObject
) -> None:
    def held(model: ModelShape) -> int:
        return int(kv_bytes(model, n_tokens=n, batch=batch, dtypes=dtypes, page_tokens=page, ranks=n_ranks))

    assert held(shape) == sum(held(replace(shape, groups=(group,))) for group in shape.groups)
    first = shape.groups[0]
    upper = data.draw(st.integers(0, first.n_layers))
    halves = tuple(replace(first, n_layers=count) for count in (upper, first.n_layers - upper) if count)
    assert held(replace(shape, groups=halves + shape.groups[1:])) == held(shape)
    assert held(replace(shape, groups=shape.groups[::-1])) == held(shape)


@fast
@given(shapes(), lengths, batches, kv_formats, ranks)
def test_the_cache_grows_with_the_batch(shape: ModelShape, n: int, batch: int, dtypes: KvDtypes, n_ranks: int) -> None:
    one = kv_bytes(shape, n_tokens=n, dtypes=dtypes, ranks=n_ranks)
    assert kv_bytes(shape, n_tokens=n, batch=batch, dtypes=dtypes, ranks=n_ranks) == batch * one
    assert kv_bytes(shape, n_tokens=0, batch=batch, dtypes=dtypes) == 0
    assert one <= kv_bytes(shape, n_tokens=n + 1, dtypes=dtypes, ranks=n_ranks)


@fast
@given(shapes(windows=False), lengths, kv_formats)
def test_without_windows_every_position_costs_the_same(shape: ModelShape, n: int, dtypes: KvDtypes) -> None:
    rate = kv_bytes_per_token(shape, dtypes)
    assert rate is not None and rate > 0 and kv_bytes(shape, n_tokens=n, dtypes=dtypes) == n * rate


@fast
@given(shapes(), lengths, pages)
def test_pages_are_whole_and_not_more_than_needed(shape: ModelShape, n: int, page: int) -> None:
    exact, paged = cache(shape, n), cache(shape, n, page=page)
    assert exact <= paged < exact + page * kv_bytes(shape, n_tokens=1) and cache(shape, n, page=1) == exact


@fast
@given(grouped_attention(windows=False), lengths)
def test_heads_that_are_shared_are_kept_once(attention: Attention, n: int) -> None:
    """Grouped queries keep 1 / (h / n_kv) of what as many KV heads as query heads would."""

    def held(kind: Attention) -> int:
        return cache(mixed(replace(idle_layers(3), attention=kind)), n)

    own_heads = replace(attention, n_kv_heads=attention.n_heads)
    assert held(attention) * attention.n_heads == held(own_heads) * attention.n_kv_heads
    assert held(replace(own_heads, n_heads=1)) == held(own_heads)


@fast
@given(lengths, lengths)
def test_a_window_bounds_and_then_does_nothing(n: int, window: int) -> None:
    windowed, full = cache(cache_only(3, 2, 5, window), n), cache(cache_only(3, 2, 5), n)
    assert windowed == cache(cache_only(3, 2, 5), min(n, window)) <= full
    assert (windowed == full) == (window >= n)
    assert windowed <= cache(cache_only(3, 2, 5, window + 1), n) <= full


@fast
@given(st.integers(1, 6), st.integers(1, 6), lengths)
def test_q8_0_is_34_32nds_of_a_byte(n_kv: int, of_32: int, n: int) -> None:
    model = cache_only(2, n_kv, 32 * of_32)
    assert cache(model, n, "q8_0") * 32 == cache(model, n, "int8") * 34
    assert cache(model, n, "q4_0") * 32 == cache(model, n, "int8") * 18


@fast
@given(shapes(), batches, kv_formats, ranks, st.integers(0, 2**22))
def test_the_longest_context_is_the_last_that_fits(
    shape: ModelShape, batch: int, dtypes: KvDtypes, n_ranks: int, room: int
) -> None:
    def needed(n: int) -> int:
        return int(kv_bytes(shape, n_tokens=n, batch=batch, dtypes=dtypes, ranks=n_ranks))

    most = max_context(shape, room=room, batch=batch, kv_dtypes=dtypes, ranks=n_ranks)
    if most is None:
        assert needed(10**9) == needed(10**12) <= room
    else:
        assert needed(most) <= room < needed(most + 1)
    assert max_context(shape, room=-1, batch=batch, kv_dtypes=dtypes) == 0


@fast
@given(st.integers(0, 10**6), st.integers(0, 10**9))
def test_the_largest_batch_is_the_last_that_fits(one: int, room: int) -> None:
    most = max_batch(one, room)
    assert most is None if one == 0 else most is not None and most * one <= room < (most + 1) * one
    assert max_batch(one, -1) == 0


@fast
@given(shapes(), lengths, batches, kv_formats, weight_formats, ranks, st.integers(0, 2**23))
def test_what_fits_agrees_with_the_most_that_fits(
    shape: ModelShape, n: int, batch: int, kv: KvDtypes, stored: WeightDtypes, n_ranks: int, capacity: int
) -> None:
    found = fit(shape, capacity=capacity, n_tokens=n, batch=batch, weight_dtypes=stored, kv_dtypes=kv, ranks=n_ranks)
    assert found.fits == (found.needed_bytes <= capacity)
    assert found.fits == (found.max_context is None or found.max_context >= n)
    assert found.fits == (found.max_batch is None or found.max_batch >= batch)


def test_full_windows_grow_no_more() -> None:
    """The last byte that a window needs decides between so many positions and any number."""
    model = cache_only(1, 1, 1, 5)
    full = cache(model, 5)
    assert max_context(model, room=full - 1, batch=1, kv_dtypes=KvDtypes()) == 4
    assert max_context(model, room=full, batch=1, kv_dtypes=KvDtypes()) is None


def test_nothing_grows_without_a_cache() -> None:
    assert max_context(mixed(idle_layers(3)), room=0, batch=1, kv_dtypes=KvDtypes()) is None


@fast
@given(shapes(), lengths, batches, kv_formats, ranks)
def test_the_derivation_of_the_cache_is_the_cache(
    shape: ModelShape, n: int, batch: int, dtypes: KvDtypes, n_ranks: int
) -> None:
    derived = kv_derivation(shape, n_tokens=n, batch=batch, dtypes=dtypes, ranks=n_ranks)
    assert derived.value == kv_bytes(shape, n_tokens=n, batch=batch, dtypes=dtypes, ranks=n_ranks)
    assert derived.formula(str) and derived.substituted()


@fast
@given(shapes(), kv_formats, st.integers(1, 5))
def test_arrays_of_lengths_and_batches(shape: ModelShape, dtypes: KvDtypes, page: int) -> None:
    n, batch = np.arange(1, 120, 7)[:, None], np.array([1, 2, 9])
    table = kv_bytes(shape, n_tokens=n, batch=batch, dtypes=dtypes, page_tokens=page)
    one_by_one = [
        [kv_bytes(shape, n_tokens=int(m), batch=int(b), dtypes=dtypes, page_tokens=page) for b in batch]
        for m in n[:, 0]
    ]
    assert np.array_equal(table, one_by_one)


@fast
@given(shapes())
def test_the_parts_are_the_whole(shape: ModelShape) -> None:
    counts = parameters(shape)
    parts = counts.input_table + counts.positions + counts.attention + counts.feed_forward + counts.experts
    assert parts + counts.norms + counts.head == counts.total == counts.resident
    assert 0 < counts.active <= counts.total
    assert counts.head == (shape.vocab_size if shape.has_head_bias else 0) + (
        0 if shape.tied_head else counts.input_table
    )
    assert weight_bytes(shape, WeightDtypes(F32)) == 4 * counts.total


@fast
@given(shapes(), st.sampled_from(MATRIX_PARTS))
def test_a_part_may_be_stored_differently(shape: ModelShape, part: Part) -> None:
    """Its matrices then take half as much; its biases, and the routers, stay as the rest is."""
    moved = sum(weight.total for weight in weights(shape) if weight.part == part and weight.follows_part)
    assert weight_bytes(shape, WeightDtypes(F32, ((part, BF16),))) == 4 * parameters(shape).total - 2 * moved
    everything = WeightDtypes(BF16, tuple((name, F32) for name in MATRIX_PARTS))
    stay = sum(weight.total for weight in weights(shape) if not weight.follows_part)
    assert weight_bytes(shape, everything) == 4 * parameters(shape).total - 2 * stay


@fast
@given(shapes(), weight_formats, st.integers(1, 10**6))
def test_a_pass_reads_no_more_than_there_is(shape: ModelShape, stored: WeightDtypes, n: int) -> None:
    read = weight_bytes_read(shape, stored, n)
    assert 0 < read <= weight_bytes(shape, stored)
    assert read <= weight_bytes_read(shape, stored, n + 1)


@pytest.mark.parametrize("width", [1, 960, 1000, 1001, 2500])
def test_norms_of_any_width_take_bytes(width: int) -> None:
    """Not only those whose numbers are a multiple of d."""
    model = replace(dense(1, 1000, 1, 1, 1, 1), final_norm_width=width)
    assert weight_bytes(model, WeightDtypes(F32)) == 4 * parameters(model).total
