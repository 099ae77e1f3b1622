"""Keeps what the pages show of a step: norms of new keys and values, queries, one attention row.

A recorder belongs to one pass. What is not asked for is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.engine.trace import AttentionRow, FloatArray, Recorded
from core.model.attention import attention_weights
from core.model.config import ModelConfig
from core.model.kv_cache import KVCache
from core.refusal import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """What to keep of every step.

    `attention` names a (layer, head); `candidates` counts the likeliest tokens. `queries` keeps the query vectors of
    each step's newest position beside the cache (`Run.queries`), for the attention of any layer and head later on.
    """

    candidates: int = 0
    kv_norms: bool = False
    queries: bool = False
    attention: tuple[int, int] | None = None

    def check(self, config: ModelConfig) -> None:
        """Raises Refusal when the layer or head does not exist in this model."""
        if self.attention is None:
            return
        layer, head = self.attention
        if not has_head(config, layer, head):
            raise Refusal(
                "engine.recorded_layer_unknown",
                layer=layer,
                head=head,
                last_layer=config.n_layers - 1,
                last_head=config.n_heads - 1,
            )


def has_head(config: ModelConfig, layer: int, head: int) -> bool:
    """Whether the model has this layer and query head."""
    return 0 <= layer < config.n_layers and 0 <= head < config.n_heads


class Recorder:
    """Listens to one pass (a `Probe`) and turns what it heard into one `Recorded` a run.

    `at_each_layer` is called whenever the pass reaches a layer; what it raises ends the pass there.
    """

    def __init__(
        self, wanted: Sequence[RecordConfig], at_each_layer: Callable[[], None] | None = None, *, n_newest: int = 1
    ) -> None:
        """`n_newest`: of how many of a pass's last positions the queries are kept; a chunk must hold so many."""
        self._wanted, self._at_each_layer, self._n_newest = wanted, at_each_layer, n_newest
        self._all_layers = any(config.queries for config in wanted)
        self._layers = {config.attention[0] for config in wanted if config.attention is not None}
        self._all_norms = any(config.kv_norms for config in wanted)
        self._queries: dict[int, Tensor] = {}  # layer → (B, n_newest, h, d_h) of the newest chunk
        self._keys_values: list[Tensor] = []  # a layer each, (B, 2·n_kv, d_h), of a chunk of one position
        self._stacked: Tensor | None = None  # the queries of all layers, once one run has asked for its own
        self._norms: Tensor | None = None

    @property
    def listens(self) -> bool:
        """Whether the pass needs to report to it at all."""
        return self._all_layers or self._all_norms or bool(self._layers) or self._at_each_layer is not None

    def saw(self, layer: int, queries: Tensor, keys_values: Tensor) -> None:
        """Called by the model for each layer of each chunk."""
        if self._at_each_layer is not None:
            self._at_each_layer()
        if self._all_layers or layer in self._layers:
            newest = queries[:, -self._n_newest :]  # (B, n_new, h, d_h) → (B, n_newest, h, d_h)
            # A copy of a part, so that the queries of a long prompt do not live until its pass is over.
            self._queries[layer] = newest.clone() if newest.shape[1] < queries.shape[1] else newest
        if self._all_norms and keys_values.shape[1] == 1:
            self._keys_values.append(keys_values[:, 0])

    def recorded(self, row: int, cache: KVCache, n_new: int) -> Recorded:
        """What run number `row` of the pass asked for, after `n_new` positions were added to its cache."""
        wanted = self._wanted[row]
        key_norms = value_norms = attention = None
        if wanted.kv_norms:
            if n_new == 1:
                norms = self._norms_of_all(cache.dtype)[row]
            else:
                norms = _norms(cache.columns(cache.n_tokens - n_new, cache.n_tokens))
            key_norms, value_norms = (
                read_only(norms[:, 0]),
                read_only(norms[:, 1]),
            )  # (L, 2, n_kv, n_new) → (L, n_kv, n_new)
        if wanted.attention is not None:
            layer, head = wanted.attention
            attention = attention_row(self._queries[layer][row, -1:], cache.keys(layer), layer, head)
        return Recorded(key_norms=key_norms, value_norms=value_norms, attention=attention)

    def _norms_of_all(self, dtype: torch.dtype) -> Tensor:
        """[B, L, 2, n_kv, 1] on the CPU, of the one new position each, rounded as their caches are."""
        if self._norms is None:
            new = torch.stack(self._keys_values, 1).to(dtype)  # L × (B, 2·n_kv, d_h) → (B, L, 2·n_kv, d_h)
            self._norms = _norms(new.unflatten(2, (2, -1)).unsqueeze(-2)).cpu()
        return self._norms

    def queries(self, row: int, dtype: torch.dtype) -> Tensor | None:
        """The queries [n_newest, L, h, d_h] of run number `row`, as rotated; None when it did not ask for them."""
        if not self._wanted[row].queries:
            return None
        if self._stacked is None:
            layers = [self._queries[layer] for layer in range(len(self._queries))]
            self._stacked = torch.stack(layers, 2).to(dtype)  # L × (B, n_newest, h, d_h) → (B, n_newest, L, h, d_h)
        # A copy of its own where others lie beside it: a run that keeps its queries should not keep theirs.
        return self._stacked[row].clone() if len(self._wanted) > 1 else self._stacked[row]


def _norms(keys_values: Tensor) -> Tensor:
    """The length of each vector [..., d_h], in fp32: [...]."""
    norms: Tensor = torch.linalg.vector_norm(keys_values, dim=-1, dtype=torch.float32)
    return norms


def attention_row(query: Tensor, keys: Tensor, layer: int, head: int) -> AttentionRow:
    """The weights of one query position [1, h, d_h] over keys [n_kv, n, d_h]: for one head, and the mean of all."""
    weights = attention_weights(query, keys)[:, 0]  # (h, n)
    return AttentionRow(
        layer=layer, head=head, weights=read_only(weights[head]), mean_over_heads=read_only(weights.mean(0))
    )


def read_only(tensor: Tensor) -> FloatArray:
    """A numpy copy that nobody can write to."""
    array: FloatArray = tensor.detach().to("cpu", torch.float32, copy=True).numpy()
    array.setflags(write=False)
    return array
