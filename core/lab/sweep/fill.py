"""Caches that hold as many positions as a decode step is to find: by passes of the model, or by random numbers."""

from __future__ import annotations

import torch

from core.engine.prefix import chunk_for
from core.lab.sweep.plan import Fill
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel


class FilledCaches:
    """B caches of `n_tokens` positions, filled chunk by chunk; each a sequence of its own."""

    def __init__(self, model: LanguageModel, batch: int, n_tokens: int, fill: Fill) -> None:
        self._model, self._n_tokens, self._fill = model, n_tokens, fill
        generator = torch.Generator().manual_seed(0)
        usable = min(model.tokenizer.vocab_size, model.config.vocab_size)
        # What the tokens say changes neither bytes nor products; every sequence has others.
        self.ids = torch.randint(0, usable, (batch, n_tokens + 1), generator=generator)  # (B, n): the new one included
        self._caches = [model.transformer.new_cache() for _ in range(batch)]

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """What is to be filled, as (row, first position), in order."""
        step = chunk_for(self._model.device)
        return [(row, begin) for row in range(len(self._caches)) for begin in range(0, self._n_tokens, step)]

    def fill(self, row: int, begin: int) -> None:
        """One chunk. What is filled already stays."""
        cache, model = self._caches[row], self._model
        end = min(begin + chunk_for(model.device), self._n_tokens)
        if cache.n_tokens >= end:
            return
        with torch.inference_mode():
            if self._fill == "prefill":
                ids = self.ids[row : row + 1, begin:end].to(model.device.torch_device)  # (1, n_new)
                model.transformer.hidden(ids, [cache])
            else:
                _write_random(cache, end - begin, seed=begin)

    def copies(self, batch: int, n_tokens: int) -> list[KVCache]:
        """The first `batch` of them with their first `n_tokens` positions, to be written to."""
        with torch.inference_mode():
            return [cache.first(n_tokens) for cache in self._caches[:batch]]


def _write_random(cache: KVCache, n_new: int, seed: int) -> None:
    config = cache.config
    generator = torch.Generator(device=cache.device).manual_seed(seed)
    size = (n_new, 2 * config.n_kv_heads, config.head_dim)
    cache.reserve(n_new)
    for layer in range(config.n_layers):
        cache.write(layer, torch.randn(size, generator=generator, device=cache.device).to(cache.dtype))
    cache.commit(n_new)
