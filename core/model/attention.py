"""Attention of new queries over all cached keys and values, and its weights when somebody wants to see them.

The mask is aligned to the end: of n positions the last n_new are the queries, and query i sees n − n_new + i + 1 of
them. (torch's own `is_causal` aligns to the beginning, which is wrong as soon as there is a past.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(queries: Tensor, keys_values: Tensor) -> Tensor:
    """Causal attention of one sequence: queries [n_new, h, d_h] over a layer's keys and values [2, n_kv, n, d_h].

    Returns [n_new, h, d_h], for each query head the values it gathered.

    A cache in half precision is read into fp32 on a CPU: the half-precision products there are several times slower
    than the conversion (n = 512, SmolLM2: 68 against 234 µs a layer).
    """
    n_new, h, d_h = queries.shape
    _, n_kv, n, _ = keys_values.shape
    keys_values = keys_values.to(queries.dtype)
    keys, values = keys_values[:1], keys_values[1:]  # (1, n_kv, n, d_h) each
    if n_new == 1:
        # One position sees everything, so the h / n_kv heads that share a KV head are simply that many queries of it.
        return F.scaled_dot_product_attention(queries.view(1, n_kv, h // n_kv, d_h), keys, values).view(1, h, d_h)
    whole = n_new == n
    attended = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],  # (1, h, n_new, d_h)
        keys,
        values,
        attn_mask=None if whole else ends_aligned_mask(n_new, n, queries.device),
        is_causal=whole,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)


def attend_within(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention inside whole sequences: [B, n, h or n_kv, d_h] each → [B, n, h, d_h]."""
    attended = F.scaled_dot_product_attention(
        queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    return attended.transpose(1, 2)


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
