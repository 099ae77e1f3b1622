"""Fewer KV heads by averaging: the rows of the key and value projections of heads that become one, added and divided.

Rotation is linear and the same for every head, so the merged head's keys are the mean of the merged heads' keys at
every position. Nobody has trained the model to live with that: what it costs is measured here, not assumed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.estimate.shape import shape_of
from core.lab.before_after import Asked, BeforeAfter, Both, Compared
from core.lab.cached_lane import CachedLane, Lane
from core.model.config import ModelConfig
from core.model.load import LanguageModel
from core.model.products import pack
from core.model.transformer import Layer
from core.refusal import Refusal


@dataclass(frozen=True, slots=True)
class MergedHeads:
    """What has been measured by now; bytes and FLOP at the newest written token's n.

    Attributes:
        n_kv_heads: before and after.
        kv_bytes_formula: of the caches; `compared.kv_bytes` is what the tensors measure.
        decode_flops: of one decode step: only the projections of keys and values shrink.
        weight_bytes: of all matrices; None until the merged model is made.
    """

    n_kv_heads: Both
    kv_bytes_formula: Both
    decode_flops: Both
    weight_bytes: Both | None
    compared: Compared


def fewer_heads(config: ModelConfig) -> list[int]:
    """To how many KV heads a model's can be merged: every smaller divisor, the largest first."""
    return [n for n in range(config.n_kv_heads - 1, 0, -1) if config.n_kv_heads % n == 0]


class Merger:
    """Makes the model with `n_kv_heads`, a layer at a time; each step may be done again."""

    def __init__(self, model: LanguageModel, n_kv_heads: int) -> None:
        """Raises Refusal for a number of heads that these cannot be merged to evenly."""
        if n_kv_heads not in fewer_heads(model.config):
            raise Refusal("techniques.merged_heads", n_kv_heads=model.config.n_kv_heads, wanted=n_kv_heads)
        self._model, self.config = model, replace(model.config, n_kv_heads=n_kv_heads)
        self._layers: dict[int, Layer] = {}

    def merge_layer(self, index: int) -> None:
        """One layer's joined projection, with averaged rows for keys and values."""
        transformer, config = self._model.transformer, self.config
        layer = transformer.layers[index]
        with torch.inference_mode():
            weight, bias = layer.qkv.unpacked()
            merged_bias = None if bias is None else self._merged(bias)
            qkv = pack(self._merged(weight.float()), merged_bias, transformer.dtype)
            qk_norm = None if layer.qk_norm is None else layer.qk_norm[: config.n_heads + config.n_kv_heads]
        self._layers[index] = replace(layer, qkv=qkv, qk_norm=qk_norm)

    def _merged(self, rows: Tensor) -> Tensor:
        """Query rows as they are; key and value rows averaged over each group of heads: [(h + 2·n_kv)·d_h, …]."""
        old = self._model.config
        parts = rows.split([old.attention_width, old.kv_width, old.kv_width])
        means = [
            part.unflatten(0, (self.config.n_kv_heads, -1, old.head_dim)).mean(1).flatten(0, 1) for part in parts[1:]
        ]
        return torch.cat([parts[0], *means])

    @property
    def model(self) -> LanguageModel:
        """The merged model, when every layer is done; all but the joined projections is shared."""
        merged = copy.copy(self._model.transformer)
        merged.config = self.config
        merged.layers = tuple(self._layers[index] for index in range(self.config.n_layers))
        return replace(self._model, config=self.config, transformer=merged)

    def let_go(self) -> None:
        """Forgets what was made."""
        self._layers = {}


def merged(model: LanguageModel, n_kv_heads: int) -> LanguageModel:
    """The whole model at once. Raises Refusal as `Merger` does."""
    merger = Merger(model, n_kv_heads)
    for index in range(model.config.n_layers):
        merger.merge_layer(index)
    return merger.model


class MergedHeadsExperiment:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, n_kv_heads: int, asked: Asked) -> None:
        """Raises Refusal for what cannot be asked, and for a number of heads that these cannot be merged to."""
        self._model, self._merger = model, Merger(model, n_kv_heads)
        self._comparison = BeforeAfter(model, self._lanes, asked)
        self._weight_bytes: Both | None = None

    @property
    def result(self) -> MergedHeads:
        """What has been measured by now."""
        compared = self._comparison.result
        n, shapes = compared.n_tokens, (self._model.shape, shape_of(self._merger.config))
        dtypes = self._model.kv_dtypes
        return MergedHeads(
            n_kv_heads=Both(self._model.config.n_kv_heads, self._merger.config.n_kv_heads),
            kv_bytes_formula=Both(*(int(kv_bytes(shape, n_tokens=n, dtypes=dtypes)) for shape in shapes)),
            decode_flops=Both(*(int(decode_flops(shape, n)) for shape in shapes)),
            weight_bytes=self._weight_bytes,
            compared=compared,
        )

    def measurement(self) -> Measurement:
        """The whole experiment for the exclusive slot: a layer at a time, then both lanes."""
        steps = [partial(self._merger.merge_layer, index) for index in range(self._model.config.n_layers)]
        made = sum(layer.qkv.n_bytes for layer in self._model.transformer.layers)
        measurement = self._comparison.measurement("merged_heads", steps, made)
        measurement.future.add_done_callback(lambda _: self._merger.let_go())
        return measurement

    def _lanes(self) -> tuple[Lane, Lane]:
        made = self._merger.model
        self._weight_bytes = Both(self._model.transformer.product_bytes, made.transformer.product_bytes)
        return CachedLane(self._model), CachedLane(made)
