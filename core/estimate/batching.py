"""What batching does for a decode step: FLOP a byte against the batch, its ceiling, and the context that lies beyond.

A batch shares the weights; every sequence brings its own cache. So FLOP a byte grows with B towards a ceiling, that of
one sequence's FLOP over its own cache, and where the ceiling lies below the card's ridge no batch is bound by compute.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

from core.estimate.curves import windows
from core.estimate.elementwise import Numbers
from core.estimate.estimate import Request
from core.estimate.fit import capacity_bytes
from core.estimate.flops import decode_flops, decode_flops_chapter
from core.estimate.kv import kv_bytes, kv_bytes_per_token
from core.estimate.query import MOST_CONTEXT
from core.estimate.roofline import Roof
from core.estimate.shape import ModelShape
from core.estimate.weights import weight_bytes, weight_bytes_read

Count = Literal["chapter", "exact"]


def intensity(shape: ModelShape, request: Request, n_tokens: int, batch: Numbers) -> Numbers:
    """FLOP a byte of a decode step at this context and batch; `batch` need not be whole."""
    flops = batch * decode_flops(shape, n_tokens)
    read = weight_bytes_read(shape, request.weight_dtypes, batch)
    return flops / (read + batch * one_cache(shape, request, n_tokens))


def one_cache(shape: ModelShape, request: Request, n_tokens: int) -> int:
    """Bytes of one sequence's cache."""
    return int(kv_bytes(shape, n_tokens=n_tokens, dtypes=request.kv_dtypes))


def ceiling(shape: ModelShape, request: Request, n_tokens: int, count: Count = "exact") -> float | None:
    """What FLOP a byte tends to as B grows, (2P + 4Ln·h·d_h) over one sequence's cache; None where nothing is cached.

    By the chapter's count P has the input table in it and the width of attention is d.
    """
    cache = one_cache(shape, request, n_tokens)
    return _flops(shape, count)(n_tokens) / cache if cache else None


def _flops(shape: ModelShape, count: Count) -> Callable[[int], int]:
    """FLOP of one sequence's decode step, by context."""
    return lambda n: int(decode_flops(shape, n) if count == "exact" else decode_flops_chapter(shape, n))


class Line(NamedTuple):
    """FLOP and cache bytes of one sequence near a context: each a constant, and what a further token adds."""

    flops: int
    flops_per_token: int
    kv: int
    kv_per_token: int


def line_at(shape: ModelShape, request: Request, n_tokens: int, count: Count = "exact") -> Line:
    """The straight lines from this context to the next one."""
    flops = _flops(shape, count)
    per_token = flops(n_tokens + 1) - flops(n_tokens)
    kv = one_cache(shape, request, n_tokens)
    kv_per_token = one_cache(shape, request, n_tokens + 1) - kv
    return Line(flops(n_tokens) - per_token * n_tokens, per_token, kv - kv_per_token * n_tokens, kv_per_token)


def context_limit(shape: ModelShape, request: Request, wanted: float, count: Count = "exact") -> float | None:
    """The context at which the ceiling falls to `wanted` FLOP a byte, between two positions; None where it never does.

    FLOP and cache are straight lines between the contexts at which windows fill up, so their difference is one too and
    its last change of sign is found exactly. The chapter's formula knows no windows: there its own limit is None.
    """
    if count == "chapter" and kv_bytes_per_token(shape, request.kv_dtypes) is None:
        return None
    flops, found = _flops(shape, count), None
    bends = (0, *windows(shape), MOST_CONTEXT)
    over = [(n, flops(n) - wanted * one_cache(shape, request, n)) for n in bends]
    for (begin, above), (end, below) in pairwise(over):
        if above >= 0 > below:
            found = begin + (end - begin) * above / (above - below)
    return found if over[-1][1] < 0 else None


class Room(NamedTuple):
    """Bytes of the card's memory: what may be filled, and what the weights leave of it for caches."""

    capacity: int
    for_caches: int


def room(shape: ModelShape, request: Request) -> Room | None:
    """The room on the request's card, or on its group of cards; None without one."""
    if request.accelerator is None:
        return None
    capacity = capacity_bytes(request.accelerator, request.memory_fraction) * request.ranks
    return Room(capacity, max(0, capacity - weight_bytes(shape, request.weight_dtypes)))


def full_batch(shape: ModelShape, request: Request, n_tokens: int) -> float | None:
    """The batch, not rounded, whose caches fill the card beside the weights; None without a card or a cache."""
    found, cache = room(shape, request), one_cache(shape, request, n_tokens)
    return None if found is None or not cache else found.for_caches / cache


def wanted_when_full(shape: ModelShape, request: Request, roof: Roof) -> float | None:
    """The ceiling that it takes for the batch that fills the card to reach the ridge; None where no cache fits.

    B·C ≥ I*·(R + B·M) with B·M the room for caches: C/M ≥ I*·(R + room)/room. Of experts, all are read.
    """
    found = room(shape, request)
    if found is None or not found.for_caches:
        return None
    read = all_weights_read(shape, request)
    return roof.ridge * (read + found.for_caches) / found.for_caches


def all_weights_read(shape: ModelShape, request: Request) -> int:
    """Bytes of the weights that a batch of many reads in a step: all that it multiplies with, every expert."""
    return int(weight_bytes_read(shape, request.weight_dtypes, MOST_CONTEXT))


def compute_bound_batch(shape: ModelShape, request: Request, roof: Roof, n_tokens: int) -> float | None:
    """The batch, not rounded, from which a decode step is bound by compute; None where no batch is.

    Of experts, all are read: then it is B·(C − I*·M) = I*·R.
    """
    gained = int(decode_flops(shape, n_tokens)) - roof.ridge * one_cache(shape, request, n_tokens)
    return roof.ridge * all_weights_read(shape, request) / gained if gained > 0 else None
