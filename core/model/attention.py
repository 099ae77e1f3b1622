"""Attention of new queries over all cached keys and values, and its weights when somebody wants to see them.

The mask is aligned to the end: of n positions the last n_new are the queries, and query i sees n − n_new + i + 1 of
them. (torch's own `is_causal` aligns to the beginning, which is wrong as soon as there is a past.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from core.model.kv_cache import KVCache


def attend(queries: Tensor, keys_values: Tensor, workspace: Tensor | None = None) -> Tensor:
    """Causal attention of one sequence: queries [n_new, h, d_h] over a layer's keys, then values [2·n_kv, n, d_h].

    Returns [n_new, h, d_h], for each query head the values it gathered. A cache in another dtype than the queries is
    converted into `workspace` (see `new_workspaces`), where it is read from.
    """
    return attend_fused(queries, *read(keys_values, workspace))


def read(keys_values: Tensor, workspace: Tensor | None) -> tuple[Tensor, Tensor]:
    """A layer's keys and values [n_kv, n, d_h] each, out of [2·n_kv, n, d_h]; converted where there is a workspace."""
    if workspace is not None:
        keys_values = workspace.copy_(keys_values)
    n_kv = keys_values.shape[0] // 2
    keys, values = keys_values.split_with_sizes((n_kv, n_kv))
    return keys, values


def attend_fused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Several new positions [n_new, h, d_h]: scores, softmax and gathering in torch's one fused kernel."""
    n_new, n = queries.shape[0], keys.shape[1]
    whole = n_new == n
    attended = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],  # (1, h, n_new, d_h)
        keys[None],
        values[None],
        attn_mask=None if whole else ends_aligned_mask(n_new, n, queries.device),
        is_causal=whole,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)


def new_workspaces(caches: Sequence[KVCache], n_new: int, dtype: torch.dtype) -> list[Tensor | None]:
    """For each cache room [2·n_kv, n, d_h] to convert one layer of it to `dtype`, for one pass; None where it has that
    dtype.

    Half-precision caches are read as fp32 on a CPU: the half-precision products there are several times slower than
    the conversion (n = 512, SmolLM2: 234 against 68 µs a layer). All layers, and all caches in turn, use the same room:
    from 128 KiB on a new one is a fresh mapping whose pages fault in, 39 µs a layer instead of 4.
    """
    needed = [cache.dtype != dtype for cache in caches]
    if not any(needed):
        return [None] * len(caches)
    shapes = [(2 * c.config.n_kv_heads, c.n_tokens + n_new, c.config.head_dim) for c in caches]
    room = torch.empty(max(map(prod, shapes)), dtype=dtype, device=caches[0].device)
    return [room[: prod(shape)].view(shape) if need else None for need, shape in zip(needed, shapes, strict=True)]


def attend_within(queries: Tensor, keys_values: Tensor, *, causal: bool = True) -> Tensor:
    """Attention inside whole sequences: [B, n, h, d_h] over keys, then values [B, n, 2·n_kv, d_h].

    Without `causal` every position sees all, those to its right too: what an encoder does, and no decoder.
    """
    keys, values = keys_values.chunk(2, 2)
    attended = F.scaled_dot_product_attention(
        queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), is_causal=causal, enable_gqa=True
    )
    return attended.transpose(1, 2)


class AttentionWithin:
    """`attend_within` for one pass, whose rows are B whole sequences one after another: R = B·n."""

    def __init__(self, batch: int, *, causal: bool = True) -> None:
        self._batch, self._causal = batch, causal

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """queries [R, h, d_h] over keys, then values [R, 2·n_kv, d_h] → gathered [R, h, d_h]; alike in each layer."""
        whole = (heads.unflatten(0, (self._batch, -1)) for heads in (queries, keys_values))
        return attend_within(*whole, causal=self._causal).flatten(0, 1)


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """The softmax rows themselves: queries [n_new, h, d_h] over keys [n_kv, n, d_h] → fp32 [h, n_new, n].

    Rows sum to 1; positions to the right of a query have weight exactly 0.
    """
    n_new, h, d_h = queries.shape
    n_kv, n, _ = keys.shape
    grouped = queries.float().transpose(0, 1).reshape(n_kv, -1, d_h)  # (n_kv, g·n_new, d_h), heads before positions
    scores = (torch.bmm(grouped, keys.float().mT) * d_h**-0.5).view(h, n_new, n)
    if n_new > 1:
        scores = scores.masked_fill(~ends_aligned_mask(n_new, n, queries.device), float("-inf"))
    weights: Tensor = scores.softmax(-1)
    return weights


def ends_aligned_mask(n_new: int, n: int, device: torch.device) -> Tensor:
    """True where query i (the (n − n_new + i)-th position) may look: [n_new, n]."""
    return torch.ones(n_new, n, dtype=torch.bool, device=device).tril(n - n_new)
