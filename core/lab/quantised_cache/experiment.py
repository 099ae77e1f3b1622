"""A quantised KV cache before and after: bytes with their scales, divergence against n, the text that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.estimate.kv import kv_bytes
from core.estimate.quantised import CacheScheme, quantised_kv_bytes
from core.lab.before_after import Asked, BeforeAfter, Both, Compared
from core.lab.cached_lane import CachedLane, Lane
from core.lab.quantised_cache.cache import QuantisedCache
from core.model.load import LanguageModel
from core.refusal import Refusal


class QuantisedCacheLane:
    """A sequence of an unchanged model that remembers in integers."""

    def __init__(self, model: LanguageModel, cache: QuantisedCache) -> None:
        self.model, self._cache = model, cache

    @property
    def kv_bytes(self) -> int:
        return self._cache.n_bytes

    def hidden(self, ids: Sequence[int]) -> Tensor:
        """New positions through all layers, their keys and values into the cache: [n_new, d]."""
        transformer, cache = self.model.transformer, self._cache
        transformer.use_threads(len(ids))
        rotations = transformer.rotations([cache.n_tokens], len(ids))
        x = transformer.embed(torch.tensor([list(ids)], device=transformer.device))  # (1, n_new) → (n_new, d)
        for index in range(len(transformer.layers)):
            x = transformer.through_layer(index, x, rotations, cache.attend)
        cache.commit(len(ids))
        return x

    def copied(self) -> QuantisedCacheLane:
        return QuantisedCacheLane(self.model, self._cache.copied())


@dataclass(frozen=True, slots=True)
class QuantisedKV:
    """What has been measured by now.

    Attributes:
        kv_bytes_formula: of both caches at the newest written token; `compared.kv_bytes` is what the tensors measure.
    """

    scheme: CacheScheme
    kv_bytes_formula: Both
    compared: Compared


class QuantisedCacheExperiment:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, scheme: CacheScheme, asked: Asked) -> None:
        """Raises Refusal for what cannot be asked, and for a group of positions that does not divide n_kv·d_h."""
        width = model.config.kv_width
        if scheme.key_group is not None and width % scheme.key_group:
            raise Refusal("techniques.quantised_key_group", group=scheme.key_group, width=width)
        self._model, self._scheme, self._most = model, scheme, asked.most_tokens
        self._comparison = BeforeAfter(model, self._lanes, asked)

    @property
    def result(self) -> QuantisedKV:
        """What has been measured by now."""
        compared = self._comparison.result
        return QuantisedKV(self._scheme, self.formula(compared.n_tokens), compared)

    def formula(self, n_tokens: int) -> Both:
        """Bytes of both caches of n positions."""
        model = self._model
        after = quantised_kv_bytes(
            model.shape, self._scheme, n_tokens, head_dim=model.config.head_dim, rest=model.kv_dtypes
        )
        return Both(int(kv_bytes(model.shape, n_tokens=n_tokens, dtypes=model.kv_dtypes)), after)

    def measurement(self) -> Measurement:
        """The whole experiment for the exclusive slot."""
        beside = (
            4 * 2 * 2 * self._most * self._model.config.kv_width
        )  # a layer's keys and values as fp32, and once more joined
        return self._comparison.measurement("quantised_cache", (), beside)

    def _lanes(self) -> tuple[Lane, Lane]:
        model = self._model
        cache = QuantisedCache(
            model.config, self._scheme, dtype=model.transformer.dtype, device=model.transformer.device
        )
        return CachedLane(model), QuantisedCacheLane(model, cache)
