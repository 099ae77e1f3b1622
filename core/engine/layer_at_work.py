"""A layer's operators one by one, by the very functions of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

from core.engine.layer_operators import FUSED
from core.model.attention import attend_fused, new_workspaces, read
from core.model.cached_attention import Together
from core.model.kv_cache import KVCache
from core.model.transformer import Rotations, Transformer


class LayerAtWork:
    """One layer and the positions that go through it: its operators in order, each to be called behind the one before.

    `x` [R, d] comes from the layers below; keys and values go to the cache's next places, which are not counted.
    """

    def __init__(self, model: Transformer, index: int, x: Tensor, cache: KVCache, rotations: Rotations) -> None:
        self._model, self._layer, self._index = model, model.layers[index], index
        self._cache, self._rotations = cache, rotations
        (self._room,) = new_workspaces([cache], x.shape[0], model.activation_dtype)
        self._one = Together([cache], model.activation_dtype, model.padding) if x.shape[0] == 1 else None
        self._given, self.x = x, x  # what goes in, and the residual stream as it is by now
        self._made = self._heads = self._keys_values = self._keys = self._values = x  # each is made by an operator

    def operators(self) -> Iterator[tuple[tuple[str, ...], Callable[[], None]]]:
        """What each is called (several names: one kernel computes them together), and what it does."""
        yield ("attention_norm",), self._norm_for_attention
        yield ("qkv",), self._project
        if self._layer.qk_norm is not None:
            yield ("qk_norm",), partial(self._norm_heads, self._layer.qk_norm)
        yield ("rotary",), self._rotate
        yield ("kv_write",), self._write
        if self._room is not None:
            yield ("kv_convert",), self._read
        if self._given.shape[0] > 1:
            yield FUSED, self._attend
        else:
            yield ("scores",), self._score
            yield ("softmax",), self._softmax
            yield ("gathering",), self._gather
        yield ("o_proj",), self._project_out
        yield ("attention_add",), self._add
        yield ("mlp_norm",), self._norm_for_mlp
        yield ("gate_up",), self._widen
        yield ("silu",), self._gate
        yield ("down",), self._narrow
        yield ("mlp_add",), self._add

    def _norm_for_attention(self) -> None:
        self.x = self._given
        self._made = self._model.norm(self.x, self._layer.attention_norm)

    def _project(self) -> None:
        self._heads = self._model.heads(self._layer.qkv(self._made))

    def _norm_heads(self, weight: Tensor) -> None:
        self._model.norm_heads(self._heads, weight)

    def _rotate(self) -> None:
        self._model.rotate(self._heads, self._rotations)
        self._made, self._keys_values = self._model.split(self._heads)  # queries

    def _write(self) -> None:
        if self._one is not None:
            self._one.write(self._index, self._keys_values)
        else:
            self._keys_values = self._cache.write(self._index, self._keys_values)
        if self._room is None:
            self._read()

    def _read(self) -> None:
        if self._one is not None:
            self._keys, self._values = self._one.read(self._index)
        else:
            self._keys, self._values = read(self._keys_values, self._room)

    def _attend(self) -> None:
        self._made = attend_fused(self._made, self._keys, self._values)

    def _score(self) -> None:
        assert self._one is not None
        self._made = self._one.score(self._made, self._keys)

    def _softmax(self) -> None:
        self._made = self._made.softmax(-1)

    def _gather(self) -> None:
        assert self._one is not None
        self._made = self._one.gather(self._made, self._values)

    def _project_out(self) -> None:
        self._made = self._layer.attention_out(self._made.flatten(1))

    def _add(self) -> None:
        self.x = self.x + self._made

    def _norm_for_mlp(self) -> None:
        self._made = self._model.norm(self.x, self._layer.mlp_norm)

    def _widen(self) -> None:
        self._made = self._layer.gate_up(self._made)

    def _gate(self) -> None:
        self._made = self._model.gated(self._made)

    def _narrow(self) -> None:
        self._made = self._layer.down(self._made)
