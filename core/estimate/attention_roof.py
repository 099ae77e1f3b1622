"""Attention's own roof: what FLOP a byte of a decode step tends to as the context grows, whatever the batch.

In the long run only the cache counts, and every row of it serves the query heads that share it: 2·2·h·d_h FLOP a
position against 2·n_kv·d_h·b_kv bytes, which is h/n_kv at two bytes a number. That is why heads are shared.
"""

from __future__ import annotations

from typing import NamedTuple

from core.estimate.catalogue import shape as shape_named
from core.estimate.curves import CONTEXTS, reach, spread
from core.estimate.estimate import Request
from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.estimate.query import changed
from core.estimate.shape import ModelShape
from core.estimate.weights import weight_bytes_read

# Name of a kind of attention → a model that has it; one of Llama's own shape, its KV heads changed, where none does.
_KINDS: dict[str, tuple[str, dict[str, int]]] = {
    "mha": ("llama-2-7b", {}),
    "gqa": ("llama-3.1-8b", {}),
    "mqa": ("llama-3.1-8b", {"n_kv_heads": 1}),
    "mla": ("deepseek-v3", {}),
}


def attention_roof(shape: ModelShape, request: Request) -> float | None:
    """FLOP a byte of one more position in the layers that still grow; of full windows where none does.

    None where nothing is cached.
    """
    beyond = max([group.attention.window or 0 for group in shape.groups if group.attention is not None], default=0) + 1
    flops = decode_flops(shape, beyond + 1) - decode_flops(shape, beyond)
    one, more = (kv_bytes(shape, n_tokens=n, dtypes=request.kv_dtypes) for n in (beyond, beyond + 1))
    if more > one:
        return float(flops / (more - one))
    return float((decode_flops(shape, beyond) - decode_flops(shape, 0)) / one) if one else None


class Rise(NamedTuple):
    """A model's FLOP a byte of a decode step at each x, and the roof that it tends to."""

    name: str
    model: str
    intensity: tuple[float, ...]
    roof: float


class Rises(NamedTuple):
    """The kinds of attention over one x, a context."""

    x: tuple[int, ...]
    lines: tuple[Rise, ...]


def attention_roofs(shape: ModelShape, request: Request) -> Rises:
    """FLOP a byte of a decode step against the context: models of each kind, and the request's own ("own") last.

    Batch and formats are the request's. A model that caches nothing has no roof and is left out.
    """
    x = spread(1, reach(request.context, CONTEXTS[1:]))[::3]
    shapes = {name: changed(shape_named(slug), more) for name, (slug, more) in _KINDS.items()}
    lines = []
    for name, one in {**shapes, "own": shape}.items():
        roof = attention_roof(one, request)
        if roof is not None:
            lines.append(Rise(name, one.name, tuple(_intensity(one, request, n) for n in x), roof))
    return Rises(x, tuple(lines))


def _intensity(shape: ModelShape, request: Request, n_tokens: int) -> float:
    batch = request.batch
    moved = weight_bytes_read(shape, request.weight_dtypes, batch) + kv_bytes(
        shape, n_tokens=n_tokens, batch=batch, dtypes=request.kv_dtypes
    )
    return float(decode_flops(shape, n_tokens, batch) / moved)
