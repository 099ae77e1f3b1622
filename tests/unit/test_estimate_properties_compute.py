"""What must hold for compute and traffic, whatever the model: tried on random ones."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.estimate.accelerators import accelerators
from core.estimate.dtypes import KvDtypes, WeightDtypes
from core.estimate.estimate import Request, estimate, estimate_json
from core.estimate.flops import (
    attended_pairs,
    decode_derivation,
    decode_flops,
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_derivation,
    prefill_flops,
    prefill_flops_chapter,
    step_flops_derivation,
)
from core.estimate.kv import kv_bytes
from core.estimate.shape import Attention, Experts, ModelShape
from core.estimate.traffic import Pass, operators
from core.estimate.weights import expected_distinct_experts, weight_bytes_read, weights
from core.estimate.wrong import wrong_formulas
from tests.unit.random_shapes import batches, expert_part, fast, kv_formats, lengths, shapes, weight_formats


@fast
@given(shapes(), lengths, batches, st.integers(1, 250))
def test_chunks_are_the_whole(shape: ModelShape, n: int, batch: int, chunk: int) -> None:
    whole = prefill_flops(shape, n, batch, causal=True)
    assert prefill_flops(shape, n, batch, causal=True, chunk=chunk) == whole
    rectangles = prefill_flops(shape, n, batch, chunk=chunk)
    assert whole <= rectangles <= prefill_flops(shape, n, batch)
    assert (rectangles == prefill_flops(shape, n, batch)) == (chunk >= n)
    assert prefill_flops(shape, n, batch) == batch * prefill_flops(shape, n)


@fast
@given(lengths, st.integers(0, 200), st.none() | st.integers(1, 250))
def test_pairs_are_those_of_every_query(n_new: int, n_past: int, window: int | None) -> None:
    """Counted one by one: the query at position m sees m keys, or the window."""
    seen = [min(m, window or m) for m in range(n_past + 1, n_past + n_new + 1)]
    assert attended_pairs(n_new, n_past, window) == sum(seen)
    if window is None and n_past == 0:
        assert sum(seen) == n_new * (n_new + 1) // 2
    assert attended_pairs(n_new, n_past, window, "square") == n_new * (n_past + n_new) >= sum(seen)


@fast
@given(shapes(latents=False), st.integers(1, 60))
def test_a_prefill_is_its_decode_steps_with_one_head(shape: ModelShape, n: int) -> None:
    steps = sum(decode_flops(shape, m) for m in range(1, n + 1))
    assert prefill_flops(shape, n, causal=True) + (n - 1) * head_flops(shape) == steps


@fast
@given(shapes(latents=False), lengths, batches)
def test_shared_heads_cost_as_much_attention(shape: ModelShape, n: int, batch: int) -> None:
    """Fewer KV heads make projections and cache smaller, not the products of queries with keys."""

    def with_kv_heads(group: Any) -> Any:
        return group if group.attention is None else replace(group, attention=own_heads(group.attention))

    def own_heads(kind: Attention) -> Attention:
        return replace(kind, n_kv_heads=kind.n_heads)

    own = replace(shape, groups=tuple(with_kv_heads(group) for group in shape.groups))
    assert decode_flops(own, n, batch) - decode_flops(own, 0, batch) == (
        decode_flops(shape, n, batch) - decode_flops(shape, 0, batch)
    )


@fast
@given(shapes(), lengths, batches)
def test_derivations_are_their_figures(shape: ModelShape, n: int, batch: int) -> None:
    for derived, value in (
        (decode_derivation(shape, n, batch), decode_flops(shape, n, batch)),
        (prefill_derivation(shape, n, batch), prefill_flops(shape, n, batch)),
        (prefill_derivation(shape, n, batch, causal=True), prefill_flops(shape, n, batch, causal=True)),
    ):
        assert derived.value == value and derived.formula(str) and derived.substituted()


@fast
@given(shapes(), st.lists(st.tuples(lengths, st.integers(0, 200)), min_size=1, max_size=3))
def test_the_derivation_of_a_step_is_its_passes(shape: ModelShape, passes: list[tuple[int, int]]) -> None:
    derived = step_flops_derivation(shape, passes)
    assert derived.value == sum(layers_flops(shape, *one) for one in passes) + head_flops(shape)
    assert derived.formula(str) and derived.substituted()


def n_routed(shape: ModelShape) -> int:
    """Kinds of tensors that routed experts have: so many expectations are rounded to whole bytes."""
    return sum(weight.experts is not None and weight.multiplies for weight in weights(shape))


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats)
def test_operators_add_up_to_a_decode_step(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes
) -> None:
    listed = operators(shape, Pass(1, n - 1, batch, stored, kv))
    assert sum(one.flops for one in listed) == decode_flops(shape, n, batch)
    assert sum(one.kv_read for one in listed) == kv_bytes(shape, n_tokens=n, batch=batch, dtypes=kv)
    assert sum(one.kv_written for one in listed) == kv_bytes(shape, n_tokens=1, batch=batch, dtypes=kv)
    read = sum(one.weights_read for one in listed)
    assert abs(read - weight_bytes_read(shape, stored, batch)) <= (n_routed(shape) + 1) / 2
    assert n_routed(shape) or read == weight_bytes_read(shape, stored, batch)
    assert all(one.bytes_moved > 0 and one.intensity > 0 for one in listed)


@fast
@given(shapes(), st.integers(2, 200), batches, weight_formats, kv_formats)
def test_operators_add_up_to_a_prefill(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes
) -> None:
    listed = operators(shape, Pass(n, 0, batch, stored, kv))
    assert sum(one.flops for one in listed) == prefill_flops(shape, n, batch)
    assert sum(one.kv_written for one in listed) == kv_bytes(shape, n_tokens=n, batch=batch, dtypes=kv)
    assert sum(one.kv_read for one in listed) == 0
    read = sum(one.weights_read for one in listed)
    assert abs(read - weight_bytes_read(shape, stored, n * batch)) <= (n_routed(shape) + 1) / 2


@fast
@given(shapes())
def test_arrays_of_lengths_and_batches(shape: ModelShape) -> None:
    n, batch = np.arange(1, 200, 13)[:, None], np.array([1, 3, 8])
    for figure in (
        decode_flops,
        prefill_flops,
        lambda *of: prefill_flops(*of, causal=True),
        decode_flops_chapter,
        prefill_flops_chapter,
    ):
        one_by_one = [[figure(shape, int(m), int(b)) for b in batch] for m in n[:, 0]]
        assert np.array_equal(figure(shape, n, batch), one_by_one)
    read = weight_bytes_read(shape, WeightDtypes(), batch)
    assert np.allclose(read, [weight_bytes_read(shape, WeightDtypes(), int(b)) for b in batch], atol=0.5, rtol=0)


@fast
@given(expert_part(), st.integers(1, 1000))
def test_experts_that_are_met(experts: Experts, n: int) -> None:
    assert expected_distinct_experts(experts, 1) == pytest.approx(experts.n_active)
    assert expected_distinct_experts(experts, 10**6) == pytest.approx(experts.n_experts)
    met, one_more = expected_distinct_experts(experts, n), expected_distinct_experts(experts, n + 1)
    assert experts.n_active - 1e-9 <= met <= one_more + 1e-9 <= experts.n_experts + 2e-9


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats)
def test_wrong_formulas_are_wrong(shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes) -> None:
    listed = wrong_formulas(shape, n_tokens=n, batch=batch, weight_dtypes=stored, kv_dtypes=kv)
    assert len({(wrong.name, wrong.quantity) for wrong in listed}) == len(listed) > 3
    for wrong in listed:
        assert wrong.value != wrong.right > 0 and isfinite(wrong.value) and wrong.value >= 0
        assert wrong.factor == wrong.value / wrong.right
    right = {wrong.quantity: wrong.right for wrong in listed}
    assert right["kv_bytes"] == kv_bytes(shape, n_tokens=n, batch=batch, dtypes=kv)
    assert right["decode_flops"] == decode_flops(shape, n, batch)
    assert right.get("prefill_flops", prefill_flops(shape, n, batch)) == prefill_flops(shape, n, batch, causal=True)


def numbers(told: object) -> list[float]:
    """All numbers in what is printed."""
    if isinstance(told, dict):
        return [number for value in told.values() for number in numbers(value)]
    return [told] if isinstance(told, int | float) else []


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats, st.integers(1, 9), st.data())
def test_no_figure_is_negative_or_no_number(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes, n_ranks: int, data: st.DataObject
) -> None:
    card = data.draw(st.sampled_from(list(accelerators().values())))
    request = Request(
        batch=batch, context=n, weight_dtypes=stored, kv_dtypes=kv, accelerator=card, ranks=n_ranks, memory_fraction=0.9
    )
    made = estimate(shape, request)
    assert all(isfinite(number) and number >= 0 for number in numbers(estimate_json(made)))
    assert made.prefill.flops_exact_causal <= made.prefill.flops_exact
    for phase in (made.decode, made.prefill):
        if phase.floor is not None:
            assert phase.floor.seconds == max(phase.floor.compute_s, phase.floor.memory_s)
            assert phase.floor.bound == ("compute" if phase.floor.compute_s > phase.floor.memory_s else "memory")
