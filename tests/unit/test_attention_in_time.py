"""Attention's own roof, and plain attention that writes its table of scores out."""

from __future__ import annotations

import pytest
from hypothesis import given

from core.estimate.accelerators import accelerator_named
from core.estimate.attention_roof import attention_roof, attention_roofs
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.dtypes import BF16, KvDtypes, kv_dtypes
from core.estimate.estimate import Request, estimate
from core.estimate.query import changed
from core.estimate.roofline import roof_of
from core.estimate.score_table import (
    attention_intensity,
    attention_traffic,
    intensity_limit,
    linear_seconds,
    outweighs_at,
    table_bytes,
    table_traffic,
)
from core.estimate.shape import Attention, ModelShape
from core.estimate.traffic import Pass, operators
from tests.unit.random_shapes import fast, kv_formats, shapes

LLAMA = shape_named("llama-3.1-8b")
H100 = roof_of(accelerator_named("h100-sxm"), BF16)


@pytest.mark.parametrize(
    ("shape", "roof"),
    [
        (shape_named("llama-2-7b"), 1),
        (LLAMA, 4),
        (changed(LLAMA, {"n_kv_heads": 1}), 32),
        (shape_named("deepseek-v3"), 2 * 128 * (576 + 512) / (576 * 2)),
        (shape_named("mistral-7b-v0.1"), 4),  # all its layers have windows: of those that are full
    ],
)
def test_attention_tends_to_h_over_n_kv(shape: ModelShape, roof: float) -> None:
    assert attention_roof(shape, Request()) == pytest.approx(roof)
    at_eight_bits = attention_roof(shape, Request(kv_dtypes=kv_dtypes("fp8")))
    assert at_eight_bits == pytest.approx(2 * roof)


def test_absorbed_latents_come_near_the_ridge() -> None:
    found = attention_roof(shape_named("deepseek-v3"), Request())
    assert found is not None and round(found) == 242 and H100 is not None and found < H100.ridge < 1.25 * found


@fast
@given(shapes(), kv_formats)
def test_the_roof_is_what_a_decode_step_tends_to(shape: ModelShape, kv: KvDtypes) -> None:
    roof = attention_roof(shape, Request(kv_dtypes=kv))
    grows = any(group.attention is not None and group.attention.window is None for group in shape.groups)
    if roof is None or not grows:
        return
    for batch in (1, 1000):
        far = estimate(shape, Request(batch=batch, context=2**44, kv_dtypes=kv)).decode.intensity
        assert far == pytest.approx(roof, rel=1e-3)


@pytest.mark.parametrize("slug", list(models()))
def test_the_lines_are_the_estimates(slug: str) -> None:
    request = Request(batch=8, context=3000)
    rises = attention_roofs(shape_named(slug), request)
    assert [one.name for one in rises.lines] == ["mha", "gqa", "mqa", "mla", "own"]
    for n, value in zip(rises.x, rises.lines[-1].intensity, strict=True):
        own = estimate(shape_named(slug), Request(batch=8, context=n)).decode.intensity
        assert value == pytest.approx(own)


def test_a_written_table_holds_attention_at_half_a_heads_width() -> None:
    assert H100 is not None
    assert intensity_limit(LLAMA) == 64 < H100.ridge
    assert intensity_limit(shape_named("deepseek-v3")) == (192 + 128) / 4
    rising = [attention_intensity(LLAMA, n) for n in (10, 1000, 100_000)]
    assert rising == sorted(rising) and rising[-1] == pytest.approx(64, rel=2e-3) and rising[0] < 10


def test_the_table_outweighs_the_linear_layers() -> None:
    assert H100 is not None
    n = outweighs_at(LLAMA, H100)
    assert n is not None and n == pytest.approx(5800, rel=0.01)
    for batch in (1, 7):
        moved_s = table_traffic(LLAMA, n, batch) / H100.bandwidth_bytes_per_s
        assert moved_s == pytest.approx(linear_seconds(LLAMA, round(n), H100, batch), rel=1e-3)


def test_the_table_counts_every_head_and_pair() -> None:
    assert table_bytes(LLAMA, 8192) == 32 * 8192**2 * 2 == 4 * 2**30
    assert table_traffic(LLAMA, 100, 3) == 3 * 4 * 2 * 32 * 32 * 100**2
    # Queries, keys, values and outputs besides.
    assert attention_traffic(LLAMA, 100) - table_traffic(LLAMA, 100) == 32 * 100 * 2 * 128 * (32 + 8 + 8 + 32)


@pytest.mark.parametrize("slug", list(models()))
def test_two_of_the_four_trips_are_the_operators_own(slug: str) -> None:
    """The product with the keys writes the table, that with the values reads it; softmax, no product, does the rest."""
    shape, n = shape_named(slug), 50
    if any(isinstance(group.attention, Attention) and group.attention.window for group in shape.groups):
        n = 10  # within every window
    listed = operators(shape, Pass(n, of_prefix=True))
    trips = sum(one.activations_written for one in listed if one.name == "scores")
    trips += sum(one.activations_read for one in listed if one.name == "gathering")
    assert 2 * trips == table_traffic(shape, n)
