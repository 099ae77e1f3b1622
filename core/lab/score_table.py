"""Attention that writes its whole table of scores, as the formula does and a good implementation does not."""

from __future__ import annotations

import torch
from torch import Tensor

from core.model.attention import ends_aligned_mask
from core.model.kv_cache import KVCache


class ScoreTable:
    """Attention as the formula writes it: softmax(QKᵀ/√d_h)·V, the whole table written out, its softmax in place."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """queries [n_new, h, d_h] over cached and these new keys, then values [n_new, 2·n_kv, d_h]."""
        n_new, h, d_h = queries.shape
        keys, values = self._cache.write(layer, keys_values).to(queries.dtype).chunk(2)  # (n_kv, n, d_h) each
        n_kv, n, _ = keys.shape
        grouped = queries.transpose(0, 1).reshape(n_kv, -1, d_h) * d_h**-0.5  # (n_kv, g·n_new, d_h)
        scores = torch.bmm(grouped, keys.mT)  # (n_kv, g·n_new, n): h·n_new·n numbers
        if n_new > 1:
            scores.view(h, n_new, n).masked_fill_(~ends_aligned_mask(n_new, n, queries.device), float("-inf"))
        scores.sub_(scores.amax(-1, keepdim=True)).exp_()
        scores.div_(scores.sum(-1, keepdim=True))
        return torch.bmm(scores, values).view(h, n_new, d_h).transpose(0, 1)
