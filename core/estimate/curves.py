"""Curves over context and batch: plain numbers for charts, at most POINTS a curve, from the functions of the figures.

The x values are whole numbers, close together in ratio, the ends and every bend (a window) among them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import floor
from typing import Literal

from core.estimate.estimate import Request
from core.estimate.flops import (
    chapter_params,
    decode_flops,
    decode_flops_chapter,
    head_flops,
    prefill_flops,
    prefill_flops_chapter,
    weights_multiplied,
)
from core.estimate.kv import kv_bytes, kv_rates
from core.estimate.shape import Attention, LatentAttention, LayerGroup, ModelShape
from core.estimate.weights import weight_bytes, weight_bytes_read

POINTS = 64
# What a chart reaches to; a longer context or a larger batch takes the second.
CONTEXTS, BATCHES = (131_072, 1 << 20, 1 << 27), (16, 64, 256, 1024, 1 << 20)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where two lines meet: its name (a key of words), the x, and the value there."""

    name: str
    x: int
    y: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines over one x, by name; `now` is the x that the dials stand at; figures in bytes or FLOP."""

    x: tuple[int, ...]
    lines: dict[str, tuple[float, ...]]
    now: int
    crossings: tuple[Crossing, ...] = ()


def spread(least: int, most: int, bends: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Whole numbers from `least` to `most`, evenly spread in ratio, POINTS of them at most."""
    n_free = POINTS - len(bends) - 1
    ratio = (most / least) ** (1 / n_free)
    steps = {round(least * ratio**step) for step in range(n_free + 1)}
    return tuple(sorted(steps | {bend for bend in bends if least <= bend <= most} | {least, most}))


def reach(now: int, reaches: tuple[int, ...]) -> int:
    """The first of the reaches that leaves room beyond where the dials stand."""
    return next((most for most in reaches if now <= most), reaches[-1])


def windows(shape: ModelShape) -> tuple[int, ...]:
    """The contexts from which some layers keep no more."""
    kinds = {group.attention.window for group in shape.groups if group.attention is not None}
    return tuple(sorted(window for window in kinds if window))[:8]


def kv_against_context(shape: ModelShape, request: Request) -> Curves:
    """KV bytes of the batch over context, the weights, and where the two are equal or fill the card together."""
    x = spread(1, reach(request.context, CONTEXTS), windows(shape))
    kv = [kv_bytes(shape, n_tokens=n, batch=request.batch, dtypes=request.kv_dtypes) for n in x]
    weights = weight_bytes(shape, request.weight_dtypes)
    crossings = []
    equal = first_context(shape, request, weights)
    if equal is not None and equal <= x[-1]:
        at = kv_bytes(shape, n_tokens=equal, batch=request.batch, dtypes=request.kv_dtypes)
        crossings.append(Crossing("kv_equals_weights", equal, at))
    return Curves(x, {"kv": tuple(kv), "weights": (weights,) * len(x)}, request.context, tuple(crossings))


def kv_against_batch(shape: ModelShape, request: Request) -> Curves:
    """KV bytes at the context over batch, and the weights, which do not grow."""
    x = spread(1, reach(request.batch, BATCHES))
    one = kv_bytes(shape, n_tokens=request.context, dtypes=request.kv_dtypes)
    weights = weight_bytes(shape, request.weight_dtypes)
    crossings = []
    if one and 1 <= (equal := round(weights / one)) <= x[-1]:
        crossings.append(Crossing("kv_equals_weights", equal, one * equal))
    kv = tuple(one * batch for batch in x)
    return Curves(x, {"kv": kv, "weights": (weights,) * len(x)}, request.batch, tuple(crossings))


def first_context(shape: ModelShape, request: Request, wanted: int) -> int | None:
    """The first context at which the batch's cache is at least `wanted` bytes; None where it never is."""
    per_sequence = wanted / request.batch
    growing = sorted(kv_rates(shape, request.kv_dtypes), key=lambda rate: rate.window or float("inf"))
    full = 0
    for place, rate in enumerate(growing):
        n = round((per_sequence - full) / sum(later.n_bytes for later in growing[place:]))
        if rate.window is None or n <= rate.window:
            return max(1, n)
        full += rate.n_bytes * rate.window
    return None


def kv_by_kind(shape: ModelShape, request: Request) -> dict[str, int]:
    """KV bytes at the same context and batch, had the model another attention: of its own heads and layers.

    Multi-head; grouped-query as it is (or with a quarter of the heads); multi-query; latent (MLA: 4·d_h for the latent
    and d_h/2 for the rotary key, DeepSeek-V2's proportions); a window of 4,096; five windowed layers to a full one.
    """
    attention = next(group.attention for group in shape.groups if group.attention is not None)
    n_layers = sum(group.n_layers for group in shape.groups if group.attention is not None)
    heads = attention.n_heads
    width = attention.value_dim if isinstance(attention, LatentAttention) else attention.head_dim
    own = attention.n_kv_heads if isinstance(attention, Attention) else heads
    grouped = own if 1 < own < heads else max(1, heads // 4)
    gqa = Attention(n_heads=heads, n_kv_heads=grouped if heads % grouped == 0 else 1, head_dim=width)
    latent = LatentAttention(
        n_heads=heads, query_rank=None, kv_rank=4 * width, nope_dim=width, rope_dim=width // 2, value_dim=width
    )
    windowed = replace(gqa, window=4096)
    n_full = max(1, floor(n_layers / 6))
    kinds: dict[str, tuple[tuple[int, Attention | LatentAttention], ...]] = {
        "mha": ((n_layers, replace(gqa, n_kv_heads=heads)),),
        "gqa": ((n_layers, gqa),),
        "mqa": ((n_layers, replace(gqa, n_kv_heads=1)),),
        "mla": ((n_layers, latent),),
        "window": ((n_layers, windowed),),
        "mixed": ((n_full, gqa), (max(0, n_layers - n_full), windowed)),
    }
    return {
        name: kv_bytes(
            replace(shape, groups=tuple(_only(shape, n, attention) for n, attention in layers if n)),
            n_tokens=request.context,
            batch=request.batch,
            dtypes=request.kv_dtypes,
        )
        for name, layers in kinds.items()
    }


def _only(shape: ModelShape, n_layers: int, attention: Attention | LatentAttention) -> LayerGroup:
    return replace(shape.groups[0], n_layers=n_layers, attention=attention)


def decode_against_context(shape: ModelShape, request: Request) -> Curves:
    """FLOP of a decode step over context: layers' weights, head, attention, and the chapter's count beside them."""
    x = spread(1, reach(request.context, CONTEXTS), windows(shape))
    batch, in_layers = request.batch, 2 * request.batch * weights_multiplied(shape)[0]
    head = batch * head_flops(shape)
    attention = tuple(decode_flops(shape, n, batch) - in_layers - head for n in x)
    lines = {
        "layers": (in_layers,) * len(x),
        "head": (head,) * len(x),
        "attention": attention,
        "chapter": tuple(decode_flops_chapter(shape, n, batch) for n in x),
    }
    crossings = []
    equal, half = attention_equals_2p(shape), attention_is_half(shape)
    if equal <= x[-1]:
        crossings.append(Crossing("attention_equals_2p", equal, decode_flops_chapter(shape, equal, batch)))
    if half is not None and half <= x[-1]:
        crossings.append(Crossing("attention_is_half", half, decode_flops(shape, half, batch)))
    return Curves(x, lines, request.context, tuple(crossings))


def prefill_against_context(shape: ModelShape, request: Request, *, causal: bool) -> Curves:
    """FLOP of a prefill over context: all weights, attention, and the chapter's count beside them.

    Attention counts the n×n square of every layer, or with `causal` the pairs that mask and windows leave.
    """
    x = spread(1, reach(request.context, CONTEXTS), windows(shape))
    batch = request.batch
    weights = tuple(batch * _prefill_weights(shape, n) for n in x)
    whole = [prefill_flops(shape, n, batch, causal=causal) for n in x]
    lines = {
        "weights": weights,
        "attention": tuple(all_of_it - own for all_of_it, own in zip(whole, weights, strict=True)),
        "chapter": tuple(prefill_flops_chapter(shape, n, batch) for n in x),
    }
    half = attention_is_half(shape, "causal" if causal else "square")
    crossings = []
    if half is not None and half <= x[-1]:
        crossings.append(Crossing("attention_is_half", half, prefill_flops(shape, half, batch, causal=causal)))
    return Curves(x, lines, request.context, tuple(crossings))


def attention_equals_2p(shape: ModelShape) -> int:
    """The context at which the chapter's 4Lnd is its 2P, to the nearest position."""
    return max(1, round(chapter_params(shape) / (2 * shape.n_layers * shape.d_model)))


def attention_is_half(shape: ModelShape, phase: Literal["decode", "square", "causal"] = "decode") -> int | None:
    """The first context at which attention costs as much as all the weights, counted exactly; None where it never does.

    `phase` is a decode step, or a prefill that counts squares or causal pairs. Attention's share never falls with n, so
    that halving the range finds it.
    """

    def is_half(n: int) -> bool:
        if phase == "decode":
            weights = 2 * sum(weights_multiplied(shape))
            return bool(decode_flops(shape, n) >= 2 * weights)
        return bool(prefill_flops(shape, n, causal=phase == "causal") >= 2 * _prefill_weights(shape, n))

    most = CONTEXTS[-1]
    first = 1 + bisect_left(range(1, most + 1), True, key=is_half)
    return first if first <= most else None


def _prefill_weights(shape: ModelShape, n_tokens: int) -> int:
    """FLOP of one sequence's products with weights: all positions through the layers, the last through the head."""
    return 2 * n_tokens * weights_multiplied(shape)[0] + int(head_flops(shape))


def experts_against_batch(shape: ModelShape, request: Request) -> Curves:
    """Bytes of weights that a decode step reads over batch, between those of one token and all that are resident.

    However few requests there are, it shows how the experts fill up.
    """
    x = spread(1, reach(request.batch, BATCHES[BATCHES.index(256) :]))
    resident = weight_bytes(shape, request.weight_dtypes)
    read = tuple(weight_bytes_read(shape, request.weight_dtypes, batch) for batch in x)
    return Curves(x, {"read": read, "resident": (resident,) * len(x)}, request.batch)
