"""Curves over context and batch: each point is the figures' own function, bends are points, crossings are crossings."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.curves import (
    BATCHES,
    CONTEXTS,
    POINTS,
    Curves,
    attention_equals_2p,
    attention_is_half,
    decode_against_context,
    experts_against_batch,
    first_context,
    kv_against_batch,
    kv_against_context,
    prefill_against_context,
    windows,
)
from core.estimate.estimate import Request, estimate
from core.estimate.flops import decode_flops, decode_flops_chapter, prefill_flops, prefill_flops_chapter
from core.estimate.gaps import decode_gap, prefill_gap
from core.estimate.kv import kv_bytes
from core.estimate.query import MOST_BATCH, MOST_CONTEXT
from core.estimate.weights import weight_bytes, weight_bytes_read
from core.words import LANGUAGES
from pages.shared.charts import CHARTS, say_in
from pages.shared.figures.chart import fine_end, live_part

LLAMA = "llama-3.1-8b"
POINTS_OF_DIALS = (Request(), Request(batch=24, context=40_000), Request(batch=MOST_BATCH, context=MOST_CONTEXT))
MODELS = tuple(models())


def all_curves(slug: str, request: Request) -> list[Curves]:
    shape = shape_named(slug)
    return [
        kv_against_context(shape, request),
        kv_against_batch(shape, request),
        decode_against_context(shape, request),
        prefill_against_context(shape, request, causal=False),
        prefill_against_context(shape, request, causal=True),
        experts_against_batch(shape, request),
    ]


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize("request_", POINTS_OF_DIALS, ids=lambda one: f"B={one.batch} n={one.context}")
def test_curves_are_short_and_reach_beyond_the_dials(slug: str, request_: Request) -> None:
    for curves in all_curves(slug, request_):
        assert 16 <= len(curves.x) <= POINTS and curves.x[0] == 1
        assert all(a < b for a, b in pairwise(curves.x)) and all(type(x) is int for x in curves.x)
        assert curves.x[0] <= curves.now <= curves.x[-1]
        assert all(len(line) == len(curves.x) for line in curves.lines.values())
        assert all(curves.x[0] <= crossing.x <= curves.x[-1] for crossing in curves.crossings)


@pytest.mark.parametrize("slug", MODELS)
def test_every_point_is_the_figures_own(slug: str) -> None:
    shape, request = shape_named(slug), Request(batch=3, context=5000)
    batch = request.batch
    decode = decode_against_context(shape, request)
    stacked = list(zip(*(decode.lines[name] for name in ("layers", "head", "attention")), strict=True))
    assert [sum(parts) for parts in stacked] == [decode_flops(shape, n, batch) for n in decode.x]
    assert list(decode.lines["chapter"]) == [decode_flops_chapter(shape, n, batch) for n in decode.x]
    for causal in (False, True):
        prefill = prefill_against_context(shape, request, causal=causal)
        both = zip(prefill.lines["weights"], prefill.lines["attention"], strict=True)
        assert [sum(parts) for parts in both] == [prefill_flops(shape, n, batch, causal=causal) for n in prefill.x]
        assert list(prefill.lines["chapter"]) == [prefill_flops_chapter(shape, n, batch) for n in prefill.x]
    kv = kv_against_context(shape, request)
    assert list(kv.lines["kv"]) == [kv_bytes(shape, n_tokens=n, batch=batch) for n in kv.x]
    of_batch = kv_against_batch(shape, request)
    assert list(of_batch.lines["kv"]) == [kv_bytes(shape, n_tokens=5000, batch=own) for own in of_batch.x]
    experts = experts_against_batch(shape, request)
    assert list(experts.lines["read"]) == [weight_bytes_read(shape, request.weight_dtypes, own) for own in experts.x]
    assert set(experts.lines["resident"]) == {weight_bytes(shape, request.weight_dtypes)}


@pytest.mark.parametrize("slug", MODELS)
def test_a_window_is_a_point(slug: str) -> None:
    shape = shape_named(slug)
    curves = all_curves(slug, Request())
    for own in (curves[0], *curves[2:5]):
        assert set(windows(shape)) <= set(own.x)


def test_crossings_of_llama() -> None:
    shape = shape_named(LLAMA)
    decode = {crossing.name: crossing.x for crossing in decode_against_context(shape, Request()).crossings}
    assert decode == {"attention_equals_2p": 30_633, "attention_is_half": 28_628}
    (memory,) = kv_against_context(shape, Request()).crossings
    assert (memory.name, memory.x) == ("kv_equals_weights", 122_532)
    assert memory.x == pytest.approx(4 * attention_equals_2p(shape), rel=1e-5)  # h/n_kv


def test_both_crossings_of_the_chapters_model_are_one() -> None:
    shape = shape_named("chapter-8b")
    assert attention_equals_2p(shape) == first_context(shape, Request(), weight_bytes(shape, Request().weight_dtypes))


@pytest.mark.parametrize("slug", MODELS)
def test_attention_is_half_from_there_on_and_not_before(slug: str) -> None:
    shape = shape_named(slug)
    weights = 2 * decode_flops(shape, 1) - decode_flops(shape, 2) if not windows(shape) else None
    n = attention_is_half(shape)
    if n is not None and weights is not None:
        assert decode_flops(shape, n - 1) < 2 * weights <= decode_flops(shape, n)
    for causal in (False, True):
        name = "causal" if causal else "square"
        half = attention_is_half(shape, "causal" if causal else "square")
        if half is None:
            assert windows(shape) and name == "causal"
            continue
        for at, is_half in ((half - 1, False), (half, True)):
            share = prefill_share(slug, at, causal)
            assert (share >= 0.5) is is_half


def prefill_share(slug: str, n: int, causal: bool) -> float:
    """Attention's, from the curve's own two lines at the one context."""
    curves = prefill_against_context(shape_named(slug), Request(context=n), causal=causal)
    whole = prefill_flops(shape_named(slug), n, causal=causal)
    weights_one, head = curves.lines["weights"][1] - curves.lines["weights"][0], curves.lines["weights"][0]
    per_position = weights_one / (curves.x[1] - curves.x[0])
    return 1 - (head + (n - 1) * per_position) / whole


def test_a_model_of_windows_alone_never_gets_there() -> None:
    shape = shape_named("mistral-7b-v0.1")
    assert attention_is_half(shape) is None and attention_is_half(shape, "causal") is None
    assert first_context(shape, Request(), weight_bytes(shape, Request().weight_dtypes)) is None


def test_experts_fill_up_with_the_batch() -> None:
    dense, moe = (experts_against_batch(shape_named(slug), Request()) for slug in (LLAMA, "qwen3-30b-a3b"))
    assert len(set(dense.lines["read"])) == 1
    read = moe.lines["read"]
    assert all(a < b for a, b in pairwise(read)) and read[0] < 0.12 * read[-1]
    assert moe.x[-1] >= 256 and read[-1] < moe.lines["resident"][-1]


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize(("n_tokens", "batch"), [(1, 1), (4096, 3), (MOST_CONTEXT, MOST_BATCH)])
def test_the_gap_is_the_sum_of_its_reasons(slug: str, n_tokens: int, batch: int) -> None:
    made = estimate(shape_named(slug), Request(context=n_tokens, batch=batch))
    decode, prefill = decode_gap(made.shape, n_tokens, batch), prefill_gap(made.shape, n_tokens, batch)
    assert decode.whole == made.decode.flops_chapter - made.decode.flops_exact
    assert prefill.whole == made.prefill.flops_chapter - made.prefill.flops_exact
    assert decode.head == 0 and min(*decode[:3], *prefill[:3]) >= 0
    assert (decode.look_up == 0) is made.shape.tied_head or made.shape.n_positions > 0


@pytest.mark.parametrize("slug", MODELS)
def test_a_live_answer_is_small(slug: str) -> None:
    for request in POINTS_OF_DIALS:
        made = estimate(shape_named(slug), request)
        for name, chart in CHARTS.items():
            for language in LANGUAGES:
                figure = chart(made, say_in(language, "decimal"))
                answer = json.dumps(live_part(figure), ensure_ascii=False, separators=(",", ":"))
                assert len(answer.encode()) <= 8192, name
                assert all(len(trace["x"]) <= POINTS for trace in figure["data"])


@pytest.mark.parametrize("slug", ["chapter-8b", "deepseek-v3", "gemma-3-4b"])
def test_axes_have_titles_with_units_and_hold_every_point(slug: str) -> None:
    made = estimate(shape_named(slug), replace(Request(), context=20_000))
    names = ("decode_against_context", "memory_against_context", "prefill_square", "prefill_causal")
    for name in (*names, "experts_against_batch"):
        figure = CHARTS[name](made, say_in("en", "binary"))
        own = figure["layout"]
        assert "(" in own["xaxis"]["title"]["text"] and "(" in own["yaxis"]["title"]["text"]
        stacks = [trace["y"] for trace in figure["data"] if trace.get("stackgroup")]
        highest = max(map(sum, zip(*stacks, strict=True))) if stacks else 0
        assert max(highest, *(max(trace["y"]) for trace in figure["data"])) <= own["yaxis"]["range"][1]


def test_the_end_of_an_axis_is_round_and_near() -> None:
    for value in (0.0013, 1, 1.01, 7, 99.9, 100, 123_456, 10**22 + 1):
        assert value <= fine_end(value) <= 1.35 * value * (1 + 1e-9)
    assert fine_end(0) == 1 and CONTEXTS[-1] == MOST_CONTEXT and BATCHES[-1] == MOST_BATCH
