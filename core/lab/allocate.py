"""The cache that an estimate speaks of, allocated for real: as many positions as a limit allows, and what it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from core.estimate.dtypes import Dtype, KvDtypes
from core.estimate.estimate import Request
from core.estimate.fit import max_context
from core.estimate.kv import kv_bytes
from core.estimate.shape import Attention, LatentAttention, ModelShape
from core.refusal import Refusal

_PLAIN = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "int8": torch.int8}


@dataclass(frozen=True, slots=True)
class Allocated:
    """What was allocated: at how many positions of how many sequences, in how many tensors.

    Attributes:
        bytes_formula: what the estimate says for it.
        bytes_tensors: the tensors' own size, added up.
        seconds: to allocate them and write a zero into every number.
    """

    n_tokens: int
    batch: int
    n_tensors: int
    bytes_formula: int
    bytes_tensors: int
    seconds: float


def allocate(shape: ModelShape, request: Request, most_bytes: int) -> Allocated:
    """Allocates the cache of `request`, of fewer positions where the whole would pass `most_bytes`, and lets it go.

    One tensor a layer for keys and one for values, [B, heads, n, width]; a latent layer has one. Formats that torch has
    no dtype for are allocated as rows of bytes.

    Raises:
        Refusal: not even one position fits.
    """
    fitting = max_context(shape, room=most_bytes, batch=request.batch, kv_dtypes=request.kv_dtypes)
    n_tokens = request.context if fitting is None else min(request.context, fitting)
    if n_tokens < 1:
        raise Refusal("estimate.allocation_too_large", batch=request.batch, most=most_bytes // 2**20)
    started = time.perf_counter()
    tensors = [
        tensor
        for group in shape.groups
        for _ in range(group.n_layers)
        for tensor in _layer(group.attention, n_tokens, request.batch, request.kv_dtypes)
    ]
    return Allocated(
        n_tokens=n_tokens,
        batch=request.batch,
        n_tensors=len(tensors),
        bytes_formula=kv_bytes(shape, n_tokens=n_tokens, batch=request.batch, dtypes=request.kv_dtypes),
        bytes_tensors=sum(tensor.nbytes for tensor in tensors),
        seconds=time.perf_counter() - started,
    )


def _layer(attention: Attention | LatentAttention | None, n: int, batch: int, dtypes: KvDtypes) -> list[Tensor]:
    if attention is None:
        return []
    if isinstance(attention, LatentAttention):
        return [_rows(batch, 1, n, attention.kv_rank + attention.rope_dim, dtypes.k)]
    held = min(n, attention.window or n)
    return [
        _rows(batch, attention.n_kv_heads, held, attention.head_dim, dtypes.k),
        _rows(batch, attention.n_kv_heads, held, attention.value_dim, dtypes.v),
    ]


def _rows(batch: int, heads: int, n: int, width: int, dtype: Dtype) -> Tensor:
    """[B, heads, n, width], or [B, n, bytes of a row] for a format without a dtype of torch."""
    if dtype.name in _PLAIN:
        return torch.zeros(batch, heads, n, width, dtype=_PLAIN[dtype.name])
    return torch.zeros(batch, n, dtype.row_bytes(heads * width), dtype=torch.uint8)
