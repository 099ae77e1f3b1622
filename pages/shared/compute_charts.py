"""Page 3's charts of an estimate: the curves of core, and in words what they say where the dials stand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.estimate.curves import (
    Curves,
    decode_against_context,
    experts_against_batch,
    kv_against_context,
    prefill_against_context,
)
from core.estimate.estimate import Estimate
from core.estimate.flops import weights_multiplied
from pages.shared.figures.chart import Figure, Say, Told
from pages.shared.figures.compute import decode_compute, experts, memory, prefill_compute
from pages.shared.numbers import gap_percent, percent

# Crossing → the sign of its place.
SIGNS = {"attention_equals_2p": "diamond", "attention_is_half": "square", "kv_equals_weights": "diamond"}


def attention_share(made: Estimate) -> float:
    """Of a decode step's FLOP."""
    weights = 2 * made.request.batch * sum(weights_multiplied(made.shape))
    return 1 - weights / made.decode.flops_exact


def _crossings(curves: Curves, say: Say) -> list[Told]:
    return [
        Told(SIGNS[one.name], say.word(f"told_{one.name}", n=say.written_count(one.x)), one.x, one.y)
        for one in curves.crossings
    ]


def _decode(made: Estimate, say: Say) -> Figure:
    flops, request = made.decode, made.request
    curves = decode_against_context(made.shape, request)
    here = _compute_here(flops.flops_exact, attention_share(made), flops.flops_chapter, request.context, say)
    return decode_compute(curves, [*here, *_crossings(curves, say)], say)


def _prefill(causal: bool, made: Estimate, say: Say) -> Figure:
    flops, request = made.prefill, made.request
    exact = flops.flops_exact_causal if causal else flops.flops_exact
    in_layers, head = weights_multiplied(made.shape)
    share = 1 - 2 * request.batch * (request.context * in_layers + head) / exact
    curves = prefill_against_context(made.shape, request, causal=causal)
    here = _compute_here(exact, share, flops.flops_chapter, request.context, say)
    return prefill_compute(curves, [*here, *_crossings(curves, say)], say)


def _compute_here(exact: int, share: float, chapter: int, context: int, say: Say) -> list[Told]:
    written = f"{say.written_flops(exact)}FLOP"
    return [
        Told("circle", say.word("told_compute", flops=written, share=percent(share)), context, exact),
        Told("", say.word("told_chapter", gap=gap_percent(chapter, exact))),
    ]


def _memory(made: Estimate, say: Say) -> Figure:
    curves = kv_against_context(made.shape, made.request)
    whole = made.weight_bytes + made.kv_bytes
    text = say.word("told_memory", bytes=say.written_bytes(whole), share=percent(made.kv_bytes / whole))
    # The cache on top of the weights is as large as they are where both together are twice as much.
    met = [Told(one.sign, one.text, one.x, one.y + made.weight_bytes) for one in _crossings(curves, say)]
    capacity = made.fit.capacity_bytes if made.fit else None
    return memory(
        curves, capacity, [Told("circle", text, made.request.context, whole), *met], made.shape.has_latents, say
    )


def _experts(made: Estimate, say: Say) -> Figure:
    read, batch = made.decode.weights_read, made.request.batch
    share = percent(read / made.weight_bytes)
    text = say.word("told_read", batch=say.written_count(batch), bytes=say.written_bytes(read), share=share)
    curves = experts_against_batch(made.shape, made.request)
    return experts(curves, [Told("circle", text, batch, read)], say)


COMPUTE_CHARTS: dict[str, Callable[[Estimate, Say], Figure]] = {
    "decode_against_context": _decode,
    "memory_against_context": _memory,
    "prefill_square": partial(_prefill, False),
    "prefill_causal": partial(_prefill, True),
    "experts_against_batch": _experts,
}
