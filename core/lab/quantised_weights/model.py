"""A loaded model with quantised matrices: a model of its own that shares all else with the one it was made from.

The input table is looked up and not multiplied with, and stays shared as it is; so do norms and rotary angles. Where
head and table are one matrix, the quantised head is a copy beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from core.estimate.quantised import Scheme
from core.lab.quantised_weights.products import Stacked, pack_quantised
from core.model.load import LanguageModel
from core.model.products import Product
from core.model.transformer import Layer

HEAD_ROWS = 8192
"""So many rows of the head are quantised at a time: a few tenths of a second."""


class Quantiser:
    """Makes the model, a layer or a piece of the head at a time; each step may be done again."""

    def __init__(self, model: LanguageModel, scheme: Scheme, *, with_head: bool = True) -> None:
        self._model, self._scheme, self._with_head = model, scheme, with_head
        self._layers: dict[int, Layer] = {}
        self._head: dict[int, Product] = {}

    def steps(self) -> list[Callable[[], None]]:
        """All that has to be done before `model`, in any order."""
        config = self._model.config
        pieces = range(0, config.vocab_size, HEAD_ROWS) if self._with_head else ()
        layers = [partial(self._quantise_layer, index) for index in range(config.n_layers)]
        return [*layers, *(partial(self._quantise_head, start) for start in pieces)]

    @property
    def model(self) -> LanguageModel:
        """The quantised model, when every step is done."""
        quantised = copy.copy(self._model.transformer)
        quantised.layers = tuple(self._layers[index] for index in range(len(quantised.layers)))
        if self._with_head:
            quantised.head = Stacked([self._head[start] for start in sorted(self._head)])
        return replace(self._model, transformer=quantised)

    def let_go(self) -> None:
        """Forgets what was made."""
        self._layers, self._head = {}, {}

    def _quantise_layer(self, index: int) -> None:
        layer = self._model.transformer.layers[index]
        with torch.inference_mode():
            self._layers[index] = replace(
                layer,
                qkv=self._quantised(layer.qkv),
                attention_out=self._quantised(layer.attention_out),
                gate_up=self._quantised(layer.gate_up),
                down=self._quantised(layer.down),
            )

    def _quantise_head(self, start: int) -> None:
        transformer = self._model.transformer
        with torch.inference_mode():
            matrix = transformer.embedding if self._model.config.tied_head else transformer.head.unpacked()[0]
            self._head[start] = pack_quantised(matrix[start : start + HEAD_ROWS].float(), None, self._scheme)

    def _quantised(self, product: Product) -> Product:
        weight, bias = product.unpacked()
        return pack_quantised(weight.float(), bias, self._scheme)


def quantised(model: LanguageModel, scheme: Scheme, *, with_head: bool = True) -> LanguageModel:
    """The whole model at once."""
    quantiser = Quantiser(model, scheme, with_head=with_head)
    for step in quantiser.steps():
        step()
    return quantiser.model
