"""The roofline: parts add up, operators are never quicker than the whole, and the floors are the estimate's own."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.estimate.accelerators import accelerator_named, accelerators
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.dtypes import BF16, KvDtypes, WeightDtypes
from core.estimate.estimate import Request, estimate
from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.kv import kv_bytes
from core.estimate.roofline import Roof, decode_pass, operator_floor, placed, prefill_pass, roof_of
from core.estimate.shape import ModelShape
from core.estimate.traffic import Pass, operators
from core.estimate.weights import weight_bytes_read
from tests.unit.random_shapes import batches, fast, kv_formats, lengths, shapes, weight_formats

H100 = accelerator_named("h100-sxm")
roofs = st.builds(Roof, st.floats(1e6, 1e18), st.floats(1e6, 1e15))


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats, roofs)
def test_the_parts_of_a_decode_step_are_the_whole(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes, roof: Roof
) -> None:
    request = Request(batch=batch, context=n, weight_dtypes=stored, kv_dtypes=kv)
    made = placed(shape, decode_pass(request), roof)
    weights, cache = weight_bytes_read(shape, stored, batch), kv_bytes(shape, n_tokens=n, batch=batch, dtypes=kv)
    assert made.flops == decode_flops(shape, n, batch)
    # What is expected of experts is rounded to whole bytes tensor by tensor.
    assert made.bytes_moved == pytest.approx(weights + cache, rel=1e-6, abs=100)
    assert made.split.memory_s * roof.bandwidth_bytes_per_s == pytest.approx(made.bytes_moved)
    assert made.split.floor_s == max(made.split.weights_s + made.split.kv_s, made.flops / roof.peak_flops)
    _operators_add_up(shape, made.operators_s, made.split.floor_s, roof, decode_pass(request))
    assert sum(group.flops for group in made.groups) <= made.flops
    assert sum(group.bytes_moved for group in made.groups) == made.bytes_moved


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats, roofs)
def test_the_parts_of_a_prefill_are_the_whole(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes, roof: Roof
) -> None:
    request = Request(batch=batch, context=n, weight_dtypes=stored, kv_dtypes=kv)
    made = placed(shape, prefill_pass(request), roof)
    assert made.flops == prefill_flops(shape, n, batch, causal=True)
    assert made.split.kv_s * roof.bandwidth_bytes_per_s == pytest.approx(
        kv_bytes(shape, n_tokens=n, batch=batch, dtypes=kv)
    )
    _operators_add_up(shape, made.operators_s, made.split.floor_s, roof, prefill_pass(request))


def _operators_add_up(shape: ModelShape, total: float, whole: float, roof: Roof, made: Pass) -> None:
    listed = operators(shape, made)
    assert total == pytest.approx(sum(operator_floor(one, made, roof) for one in listed))
    assert total >= whole * (1 - 1e-9)
    assert total <= 2 * whole * (1 + 1e-9), "computing and moving, one after the other, is as long as it can get"


@pytest.mark.parametrize("slug", list(models()))
def test_the_floors_are_the_estimates(slug: str) -> None:
    for card in accelerators().values():
        roof = roof_of(card, BF16)
        for batch, context in ((1, 1), (3, 5000), (256, 40)):
            request = Request(batch=batch, context=context, accelerator=card)
            made = estimate(shape_named(slug), request)
            if roof is None:
                assert made.decode.floor is None
                continue
            decode, prefill = (placed(made.shape, of(request), roof).split for of in (decode_pass, prefill_pass))
            assert made.decode.floor is not None and made.prefill.floor is not None
            assert decode.floor_s == pytest.approx(made.decode.floor.seconds, rel=1e-6)
            assert prefill.floor_s == pytest.approx(made.prefill.floor.seconds, rel=1e-6)
            assert (decode.bound, prefill.bound) == (made.decode.floor.bound, made.prefill.floor.bound)


def test_a_roof_has_a_ridge() -> None:
    roof = Roof(600.0, 3.0)
    assert roof.ridge == 200 and roof.reachable(200) == 600 == roof.reachable(inf)
    assert roof.reachable(50) == 150 and roof_of(accelerator_named("rtx-4080"), BF16) is None
    assert roof_of(H100, BF16, 8) == Roof(8 * 989e12, 8 * 3.35e12)


def test_llama_on_an_h100() -> None:
    """One request: 1.1 FLOP a byte against a ridge of 295, and a prefill far beyond it."""
    request = Request(accelerator=H100)
    roof = roof_of(H100, BF16)
    assert roof is not None and round(roof.ridge, 1) == 295.2
    decode = placed(shape_named("llama-3.1-8b"), decode_pass(request), roof)
    assert decode.split.bound == "memory" and decode.intensity == pytest.approx(1.104, abs=0.001)
    assert {group.name: round(group.intensity, 2) for group in decode.groups} == {
        "projection": 1,
        "attention": 4,
        "head": 1,
    }
    prefill = placed(shape_named("llama-3.1-8b"), prefill_pass(request), roof)
    assert prefill.split.bound == "compute" and prefill.intensity > 10 * roof.ridge
    # Queries, outputs and scores: none of the floors has them, and unfused they are no trifle.
    assert prefill.split.activations_s > 0 and prefill.split.memory_s < prefill.split.activations_s


def test_a_large_batch_is_slower_by_operators_than_as_a_whole() -> None:
    """Products wait for compute while attention waits for memory: together they could overlap, in turn they cannot."""
    request = Request(batch=700, context=200, accelerator=H100)
    roof = roof_of(H100, BF16)
    assert roof is not None
    made = placed(shape_named("llama-3.1-8b"), decode_pass(request), roof)
    assert made.split.bound == "compute" and made.operators_s > 1.3 * made.split.floor_s
    assert made.flops_per_s < 0.75 * roof.peak_flops
