"""A sequence and its cache, as the experiments on a cache drive it: filled chunk by chunk, then taken on or taken back.

The cache holds the columns of all ids but the newest, whose column the next pass makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from core.engine.prefix import chunk_for
from core.estimate.kv import kv_bytes
from core.model.cached_attention import CachedAttention
from core.model.device import Device
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.load import LanguageModel
from core.model.transformer import Attend, Transformer


class Lane:
    """One sequence on a transformer. Used by one thread; `fill_points` and `go_back` make every point repeatable."""

    def __init__(self, transformer: Transformer, device: Device, ids: Sequence[int]) -> None:
        self.transformer, self.device = transformer, device
        self.ids = list(ids)
        self.cache: KVCache = transformer.new_cache()

    def fill_points(self) -> list[Callable[[], None]]:
        """Passes that put all ids so far but the newest into the cache; any of them may be done again."""
        n, chunk = len(self.ids) - 1, chunk_for(self.device)
        return [partial(self._fill, begin, min(begin + chunk, n)) for begin in range(0, n, chunk)]

    def _fill(self, begin: int, end: int) -> None:
        self.cache.truncate(begin)
        fill(self.transformer, self.ids[begin:end], self.cache)

    def next_logits(self) -> Tensor:
        """The newest id through layers and head: logits [vocab] behind it."""
        return logits_behind(self.transformer, self.ids[self.cache.n_tokens :], self.cache)[-1]

    def go_back(self, n_tokens: int) -> None:
        """Takes the sequence back to its first `n_tokens` ids, and the cache to what it holds of them."""
        del self.ids[n_tokens:]
        self.cache.truncate(min(self.cache.n_tokens, n_tokens - 1))


def fill(transformer: Transformer, ids: Sequence[int], cache: KVCache) -> None:
    """New positions through the layers behind a cache, for their keys and values alone."""
    with torch.inference_mode():
        transformer.hidden(torch.tensor([list(ids)], device=transformer.device), [cache])  # (1, n_new)


def logits_behind(transformer: Transformer, ids: Sequence[int], cache: KVCache) -> Tensor:
    """New positions through the layers behind a cache, and all of them through the head: fp32 logits [n_new, vocab]."""
    with torch.inference_mode():
        hidden = transformer.hidden(torch.tensor([list(ids)], device=transformer.device), [cache])  # (1, n_new, d)
        return transformer.logits(hidden[0])


def logits_of_newest(transformer: Transformer, ids: Sequence[int], cache: KVCache) -> Tensor:
    """New positions through the layers behind a cache, and the last of them through the head: fp32 logits [vocab]."""
    with torch.inference_mode():
        hidden = transformer.hidden(torch.tensor([list(ids)], device=transformer.device), [cache])  # (1, n_new, d)
        return transformer.logits(hidden[0, -1])


def through_cache(transformer: Transformer, x: Tensor, cache: KVCache, position: int) -> Tensor:
    """What `Transformer.hidden` does behind one cache, for rows x [n_new, d] that need not be a token's, the first of
    them rotated as at `position`, which need not be the cache's length. Returns [n_new, d].
    """
    with torch.inference_mode():
        n_new = x.shape[0]
        cache.reserve(n_new)
        attend = CachedAttention([cache], n_new, transformer.activation_dtype, transformer.padding).attend
        x = through_layers(transformer, x, position, attend)
        cache.commit(n_new)
        return x


def through_layers(transformer: Transformer, x: Tensor, position: int, attend: Attend) -> Tensor:
    """Rows x [n_new, d] through all layers with an attention of one's own, rotated from `position` on: [n_new, d]."""
    transformer.use_threads(x.shape[0])
    rotations = transformer.rotations([position], x.shape[0])
    for index in range(len(transformer.layers)):
        x = transformer.through_layer(index, x, rotations, attend)
    return x


def best_going_on(model: LanguageModel, logits: Tensor) -> int:
    """The most likely token of logits [vocab] that does not end the text."""
    return int(without_end_tokens(model, logits).argmax())


def without_end_tokens(model: LanguageModel, logits: Tensor) -> Tensor:
    """The usable ones of logits [vocab], −∞ where a token ends the text: some experiments need so many steps."""
    scores = usable(model, logits).clone()
    scores[sorted(model.end_token_ids)] = float("-inf")
    return scores


def usable(model: LanguageModel, logits: Tensor) -> Tensor:
    """Those of logits [..., vocab] that belong to a token."""
    return logits[..., : model.tokenizer.vocab_size]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one step's logits are from another's: the largest |difference| of any, and KL of the distributions at
    temperature 1, in nats."""

    logit: float
    kl: float


def difference(true: Tensor, other: Tensor) -> Difference:
    """Between two logits [usable]; KL(true ‖ other) = Σ p·(ln p − ln q)."""
    p, q = (logits.cpu().double().log_softmax(-1) for logits in (true, other))  # some devices have no fp64
    return Difference(float((true - other).abs().max()), max(0.0, float((p.exp() * (p - q)).sum())))


def columns_difference(one: KVCache, other: KVCache) -> float:
    """The largest |difference| of any key or value of two caches of one model that hold equally many positions."""
    n = one.n_tokens
    with torch.inference_mode():
        return float((one.columns(0, n).float() - other.columns(0, n).float()).abs().max())


def cache_bytes(model: LanguageModel, n_tokens: int) -> int:
    """What a cache of so many positions reserves, in whole blocks."""
    return int(kv_bytes(model.shape, n_tokens=n_tokens, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS))
