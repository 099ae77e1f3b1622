"""Random queries, keys and values, and torch's own attention of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def operands(n: int, d: int, h: int, n_kv: int, batch: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys that are not small: the running maximum has something to do."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(batch, heads, n, d, generator=generator) for heads in (h, n_kv, n_kv))
    return 3 * q, 2 * k, v


def reference(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
