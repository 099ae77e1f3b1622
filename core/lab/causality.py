"""Does the past change when something is written to its right? Keys and values of old positions, before and after.

The first m positions go through the model alone, and once more with t tokens behind them, in one pass each. With the
causal mask no position sees what is to its right, so nothing that it computes can change: that is what makes a cache of
keys and values right. Without the mask (the same weights, attention to both sides) every position gathers from the new
tokens too, and what the next layer makes of it is different. The first layer's keys and values stay even then: they are
made of each token's own embedding and position before anything was gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.model.attention import AttentionWithin
from core.model.device import Device
from core.model.load import LanguageModel
from core.refusal import Refusal

N_GENERATED = 8
"""Tokens the model itself writes to the right where none are given."""


def most_positions(device: Device) -> int:
    """Positions of the longer pass, so that it takes less than a second: SmolLM2 on one or two CPU cores."""
    return 256 if device.kind == "cpu" else 2048


@dataclass(frozen=True, slots=True)
class LayerChange:
    """The largest |difference| of any number of a layer's old keys and of its old values."""

    keys: float
    values: float

    @property
    def largest(self) -> float:
        """Of both."""
        return max(self.keys, self.values)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the old keys and values, layer by layer. `magnitude` is the largest |number| among them."""

    layers: tuple[LayerChange, ...]
    magnitude: float

    @property
    def largest(self) -> float:
        """The largest difference in any layer."""
        return max((layer.largest for layer in self.layers), default=0.0)


@dataclass(frozen=True, slots=True)
class Causality:
    """Both experiments: m old positions of `n_prompt`, t tokens written to their right.

    `unmasked` and `masked` are None as long as they have not been measured.
    """

    n_prompt: int
    n_past: int
    right_ids: tuple[int, ...]
    masked: Change | None
    unmasked: Change | None


class _Kept:
    """A `Probe` that keeps each layer's keys and values of the first m positions: L × (2·n_kv rows of [m, d_h])."""

    def __init__(self, n_past: int) -> None:
        self._n_past = n_past
        self.layers: list[Tensor] = []  # each [m, 2·n_kv, d_h], keys before values

    def saw(self, layer: int, queries: Tensor, keys_values: Tensor) -> None:
        self.layers.append(keys_values[0, : self._n_past].clone())


class _Compared:
    """A `Probe` that compares the same positions of a longer pass with what was kept, and keeps nothing."""

    def __init__(self, kept: _Kept, n_past: int) -> None:
        self._kept, self._n_past = kept, n_past
        self._layers: list[LayerChange] = []
        self._magnitude = 0.0

    def saw(self, layer: int, queries: Tensor, keys_values: Tensor) -> None:
        before = self._kept.layers[layer]
        differences = (keys_values[0, : self._n_past].float() - before.float()).abs()
        keys, values = differences.chunk(2, 1)  # (m, n_kv, d_h) each
        self._layers.append(LayerChange(float(keys.max()), float(values.max())))
        self._magnitude = max(self._magnitude, float(before.abs().max()))

    @property
    def change(self) -> Change:
        return Change(tuple(self._layers), self._magnitude)


class CausalityProof:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, past_ids: Sequence[int], right_ids: Sequence[int] = ()) -> None:
        """Without `right_ids` the model continues the past itself. A long past is cut to its beginning.

        Raises Refusal for a past that cannot be fed, and for more to the right than there is room for.
        """
        model.check_prompt(past_ids)
        most = min(most_positions(model.device), model.config.context_limit)
        room = most - max(len(right_ids), N_GENERATED)
        if room < 1:
            raise Refusal("causality.right_too_long", n_tokens=len(right_ids), most=most - 1)
        self._model, self._n_prompt = model, len(past_ids)
        self._past, self._right = list(past_ids[:room]), list(right_ids)
        self._kept: dict[bool, _Kept] = {}
        self._changes: dict[bool, Change] = {}

    @property
    def result(self) -> Causality:
        """What has been measured by now."""
        changes = self._changes
        return Causality(
            self._n_prompt, len(self._past), tuple(self._right), masked=changes.get(True), unmasked=changes.get(False)
        )

    def measurement(self) -> Measurement:
        """The whole proof for the exclusive slot."""
        config = self._model.config
        n_bytes = 2 * len(self._past) * config.n_layers * 2 * config.kv_width * 4  # both kept copies, fp32 at most
        return Measurement("causality", self.points(), n_bytes=n_bytes)

    def points(self) -> list[Callable[[], None]]:
        """The tokens to the right where there are none, then both passes of both experiments."""
        writing: list[Callable[[], None]] = [] if self._right else [self._write]
        passes = [partial(step, causal) for causal in (True, False) for step in (self._before, self._after)]
        return [*writing, *passes]

    def _write(self) -> None:
        run = Run(self._model, self._past, RunConfig(max_new=N_GENERATED))
        self._right = [event.sampled.token_id for event in generate(self._model, run) if event.sampled]

    def _before(self, causal: bool) -> None:
        self._kept[causal] = kept = _Kept(len(self._past))
        self._pass(self._past, kept, causal)

    def _after(self, causal: bool) -> None:
        compared = _Compared(self._kept[causal], len(self._past))
        self._pass([*self._past, *self._right], compared, causal)
        self._changes[causal] = compared.change

    def _pass(self, ids: list[int], probe: _Kept | _Compared, causal: bool) -> None:
        model = self._model
        with torch.inference_mode():
            rows = torch.tensor([ids], device=model.device.torch_device)  # (1, n)
            attention = AttentionWithin(1, causal=causal)
            model.transformer.hidden(rows, probe=probe, attend=attention.attend)
