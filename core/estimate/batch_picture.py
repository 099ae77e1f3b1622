"""The curves of "does batching help?": FLOP a byte against the batch for several contexts, and what memory allows."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from core.estimate.batching import ceiling, full_batch, intensity, room
from core.estimate.curves import reach, spread
from core.estimate.estimate import Request
from core.estimate.fit import max_context
from core.estimate.roofline import Roof
from core.estimate.shape import ModelShape

CONTEXTS = (128, 512, 2048, 8192, 32_768)
"""The contexts that always have a curve, besides the dials' own."""
BATCHES = (4096, 1 << 20)
Point = tuple[float, float]


class BatchCurve(NamedTuple):
    """FLOP a byte of one context at each x, a batch; the batch and the place where the card is full (None where that is
    never, or at once, as the weights alone do not fit); and what it tends to without end."""

    n_tokens: int
    intensity: tuple[float, ...]
    full: Point | None
    is_too_large: bool
    ceiling: float


class BatchPicture(NamedTuple):
    """All curves over one x, the dials' own last; where the card is full over all contexts; what can be reached above
    the ridge, as the corners of a region; and the place of the dials."""

    x: tuple[int, ...]
    curves: tuple[BatchCurve, ...]
    ridge: float
    front: tuple[Point, ...]
    reached: tuple[Point, ...]
    now: Point


def batch_picture(shape: ModelShape, request: Request, roof: Roof) -> BatchPicture:
    """The picture of a request under a roof; without a card of its own nothing ever is full."""
    x = _sparse(spread(1, reach(request.batch, BATCHES)))
    own = request.context
    front = tuple(_front(shape, request, x))
    full_at = dict(front)
    # Without a card every context can be had at every batch; with one, the shortest that there is still may not fit.
    edge = [(batch, max(roof.ridge, full_at.get(batch, 0.0)), intensity(shape, request, 1, batch)) for batch in x]
    above = [(float(batch), low, high) for batch, low, high in edge if high > low and _fits(shape, request, batch)]
    reached = (*((batch, low) for batch, low, _ in above), *((batch, high) for batch, _, high in reversed(above)))
    return BatchPicture(
        x=x,
        curves=tuple(_curve(shape, request, n, x) for n in (*CONTEXTS, own)),
        ridge=roof.ridge,
        front=front,
        reached=reached,
        now=(float(request.batch), float(intensity(shape, request, own, request.batch))),
    )


def _sparse(x: tuple[int, ...]) -> tuple[int, ...]:
    """Every third, and the end: the curves are smooth, and there are many of them."""
    return tuple(sorted({*x[::3], x[-1]}))


@lru_cache(maxsize=512)
def _curve(shape: ModelShape, request: Request, n_tokens: int, x: tuple[int, ...]) -> BatchCurve:
    """One curve; kept, as a dial that is dragged changes only the last one."""
    filled = full_batch(shape, request, n_tokens)
    ys = tuple(float(intensity(shape, request, n_tokens, batch)) for batch in x)
    full = (filled, float(intensity(shape, request, n_tokens, filled))) if filled else None
    return BatchCurve(n_tokens, ys, full, filled == 0, ceiling(shape, request, n_tokens) or ys[-1])


def _front(shape: ModelShape, request: Request, x: tuple[int, ...]) -> list[Point]:
    """At each batch FLOP a byte of the longest context that fits; batches that nothing stops, or that fit not at all,
    are left out."""
    found = room(shape, request)
    if found is None:
        return []
    longest = [
        (batch, max_context(shape, room=found.for_caches, batch=batch, kv_dtypes=request.kv_dtypes)) for batch in x
    ]
    return [(float(batch), float(intensity(shape, request, n, batch))) for batch, n in longest if n]


def _fits(shape: ModelShape, request: Request, batch: int) -> bool:
    most = full_batch(shape, request, 1)
    return most is None or batch <= most
