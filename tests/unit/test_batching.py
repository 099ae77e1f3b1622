"""Batching: the ceiling is what FLOP a byte tends to, and the contexts beyond which no batch helps are as published."""

from __future__ import annotations

import pytest
from hypothesis import given

from core.estimate.accelerators import accelerator_named
from core.estimate.batch_picture import CONTEXTS, batch_picture
from core.estimate.batching import (
    ceiling,
    compute_bound_batch,
    context_limit,
    full_batch,
    intensity,
    one_cache,
    room,
    wanted_when_full,
)
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.dtypes import KvDtypes, WeightDtypes
from core.estimate.estimate import Request, estimate
from core.estimate.flops import decode_flops_chapter
from core.estimate.query import MOST_CONTEXT
from core.estimate.roofline import Roof, roof_of
from core.estimate.shape import ModelShape
from tests.unit.random_shapes import batches, fast, kv_formats, lengths, shapes, weight_formats

A100, H100 = "a100-sxm-80gb", "h100-sxm"


def on(card: str, **more: int) -> tuple[Request, Roof]:
    request = Request(accelerator=accelerator_named(card), **more)  # type: ignore[arg-type]
    assert request.accelerator is not None
    roof = roof_of(request.accelerator, request.weight_dtypes.rest)
    assert roof is not None
    return request, roof


@pytest.mark.parametrize(
    ("slug", "card", "chapter", "exact"),
    [
        ("llama-3.1-8b", H100, 421, 393),
        ("llama-3.1-8b", A100, 822, 768.5),  # printed as 769, with a ridge rounded to 153
        ("llama-2-7b", H100, 87, 86),
    ],
)
def test_no_batch_makes_decoding_compute_bound_beyond(slug: str, card: str, chapter: float, exact: float) -> None:
    request, roof = on(card)
    found = [context_limit(shape_named(slug), request, roof.ridge, count) for count in ("chapter", "exact")]
    assert found == [pytest.approx(chapter, abs=0.5), pytest.approx(exact, abs=0.5)]


@pytest.mark.parametrize(("card", "about"), [(H100, 330), (A100, 640)])
def test_finite_memory_sets_an_earlier_limit(card: str, about: int) -> None:
    request, roof = on(card)
    wanted = wanted_when_full(shape_named("llama-3.1-8b"), request, roof)
    assert wanted is not None
    exact, chapter = (
        context_limit(shape_named("llama-3.1-8b"), request, wanted, count) for count in ("exact", "chapter")
    )
    assert exact is not None and chapter is not None and exact < about < chapter
    assert exact == pytest.approx(about, rel=0.05) and chapter == pytest.approx(about, rel=0.05)


@pytest.mark.parametrize("slug", list(models()))
@pytest.mark.parametrize("card", [H100, A100, "l4"])
def test_the_limit_is_where_the_ceiling_meets_the_ridge(slug: str, card: str) -> None:
    request, roof = on(card)
    shape = shape_named(slug)
    limit = context_limit(shape, request, roof.ridge)
    if limit is None:
        assert (ceiling(shape, request, MOST_CONTEXT) or 0) >= roof.ridge
        return
    before, after = ceiling(shape, request, int(limit)), ceiling(shape, request, int(limit) + 1)
    assert before is not None and after is not None and before >= roof.ridge > after
    assert compute_bound_batch(shape, request, roof, int(limit)) is not None
    assert compute_bound_batch(shape, request, roof, int(limit) + 1) is None


@pytest.mark.parametrize("slug", list(models()))
def test_the_card_that_is_full_reaches_the_ridge_up_to_its_limit(slug: str) -> None:
    request, roof = on("b200")
    shape = shape_named(slug)
    wanted = wanted_when_full(shape, request, roof)
    if wanted is None:
        assert room(shape, request) and estimate(shape, request).fit.max_batch == 0  # type: ignore[union-attr]
        return
    limit = context_limit(shape, request, wanted)
    assert limit is not None
    for n, is_reached in ((max(1, int(limit)), True), (int(limit) + 1, False)):
        full = full_batch(shape, request, n)
        assert full is not None
        # Of experts all are taken as read, which only the largest batches do.
        found = intensity(shape, request, n, full)
        assert (found >= roof.ridge) is is_reached or found == pytest.approx(roof.ridge, rel=0.02)


def test_some_models_have_no_limit() -> None:
    """Absorbed latents bring 242 FLOP a byte: over an A100's ridge at any context, under an H100's in the end."""
    shape = shape_named("deepseek-v3")
    for card, has_one in ((A100, False), (H100, True)):
        request, roof = on(card)
        assert (context_limit(shape, request, roof.ridge) is not None) is has_one


def test_the_chapter_knows_no_windows() -> None:
    request, roof = on(H100)
    assert context_limit(shape_named("gemma-3-12b"), request, roof.ridge, "chapter") is None
    assert context_limit(shape_named("gemma-3-12b"), request, roof.ridge) == pytest.approx(204, abs=1)


@fast
@given(shapes(), lengths, batches, weight_formats, kv_formats)
def test_the_ceiling_is_the_limit_of_ever_larger_batches(
    shape: ModelShape, n: int, batch: int, stored: WeightDtypes, kv: KvDtypes
) -> None:
    request = Request(batch=batch, context=n, weight_dtypes=stored, kv_dtypes=kv)
    top = ceiling(shape, request, n)
    if top is None:
        assert not one_cache(shape, request, n)
        return
    rising = [intensity(shape, request, n, size) for size in (10**6, 10**9, 10**12)]
    assert rising[0] <= rising[1] <= rising[2] <= top * (1 + 1e-12)
    assert rising[2] == pytest.approx(top, rel=1e-3)
    made = estimate(shape, request)
    assert made.decode.intensity == pytest.approx(intensity(shape, request, n, batch), rel=1e-9)


def test_the_chapters_ceiling_is_its_formula() -> None:
    shape, (request, _) = shape_named("llama-3.1-8b"), on(H100)
    assert ceiling(shape, request, 1000, "chapter") == decode_flops_chapter(shape, 1000) / (1000 * 131_072)


def test_the_batch_from_which_computing_decides() -> None:
    shape, (request, roof) = shape_named("llama-3.1-8b"), on(H100)
    batch = compute_bound_batch(shape, request, roof, 200)
    assert batch is not None and intensity(shape, request, 200, batch) == pytest.approx(roof.ridge)


@pytest.mark.parametrize("slug", list(models()))
@pytest.mark.parametrize(("card", "batch", "context"), [(H100, 1, 4096), ("t4", 5000, 1), (A100, 64, 200_000)])
def test_the_picture_is_made_of_the_figures(slug: str, card: str, batch: int, context: int) -> None:
    request, roof = on(card, batch=batch, context=context)
    shape = shape_named(slug)
    picture = batch_picture(shape, request, roof)
    assert [curve.n_tokens for curve in picture.curves] == [*CONTEXTS, context]
    assert picture.x[0] == 1 and picture.x[-1] >= batch and picture.now[0] == batch
    assert picture.now[1] == pytest.approx(estimate(shape, request).decode.intensity)
    for curve in picture.curves:
        for size, value in zip(picture.x, curve.intensity, strict=True):
            assert value == intensity(shape, request, curve.n_tokens, size)
        full = full_batch(shape, request, curve.n_tokens)
        assert curve.is_too_large is (full == 0) and (curve.full or (full or None,))[0] == (full or None)
    assert all(y >= roof.ridge * (1 - 1e-12) for _, y in picture.reached)
