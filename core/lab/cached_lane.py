"""One sequence on its way through a model that is compared: what it offers, and the one with the ordinary cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from core.model.kv_cache import KVCache
from core.model.load import LanguageModel


class Lane(Protocol):
    """One sequence on its way through a model, with what it remembers."""

    model: LanguageModel

    @property
    def kv_bytes(self) -> int:
        """Bytes of what it remembers, by the tensors' own size."""
        ...

    def hidden(self, ids: Sequence[int]) -> Tensor:
        """New positions through all layers: [n_new, d]."""
        ...

    def copied(self) -> Lane:
        """The same sequence, remembered apart."""
        ...


class CachedLane:
    """A lane with the ordinary cache."""

    def __init__(self, model: LanguageModel, cache: KVCache | None = None) -> None:
        self.model = model
        self._cache = model.transformer.new_cache() if cache is None else cache

    @property
    def kv_bytes(self) -> int:
        return self._cache.used_bytes

    def hidden(self, ids: Sequence[int]) -> Tensor:
        rows = torch.tensor([list(ids)], device=self.model.device.torch_device)  # (1, n_new)
        return self.model.transformer.hidden(rows, [self._cache])[0]

    def copied(self) -> CachedLane:
        return CachedLane(self.model, self._cache.first(self._cache.n_tokens))
