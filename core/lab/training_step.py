"""One training step for real: every position at once, for the text is known. Why training keeps no cache.

On a copy of the tiny model, read again from its files in fp32; the model that visitors share is not touched. The losses
of all positions come out of one pass, and the same ones out of as many passes with a cache. Then the weights are
changed, and with them every key and value that a cache would have kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from core.engine.exclusive import Measurement
from core.estimate.weights import parameters
from core.lab.lane import fill, logits_behind
from core.model.device import Stopwatch
from core.model.files.checkpoint import open_checkpoint
from core.model.kv_cache import KVCache
from core.model.load import TINY, LanguageModel, find_model
from core.model.parameters import parameter_shapes
from core.model.transformer import Transformer
from core.refusal import Refusal

MOST_POSITIONS = 256
LEARNING_RATE = 0.003
"""Of plain gradient descent: the weights move against their gradient, by this times it. The loss fell with every text
that was tried; at ten times it no longer did. (torch's optimisers take seconds to be imported.)"""


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """One training step.

    Attributes:
        losses: −ln of the probability of each next token, in nats, one a position; the loss is their mean.
        gradient_norm: the length of the gradient of all weights together.
        forward_seconds, backward_seconds, update_seconds: of its three parts.
        kept_bytes: tensors kept from the forward for the backward pass, weights not counted.
        losses_after: the same after the update, by a pass of its own.
        cache_change: the largest |difference| of any key or value of this text before and after the update.
        cache_magnitude: the largest |key or value| before it.
    """

    losses: tuple[float, ...]
    gradient_norm: float
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    kept_bytes: int
    losses_after: tuple[float, ...]
    cache_change: float
    cache_magnitude: float


@dataclass(frozen=True, slots=True)
class OneByOne:
    """The same losses by a pass a position with a cache, as decoding would find them, and the seconds of all."""

    losses: tuple[float, ...]
    seconds: float
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A training step on the first `n_positions` + 1 of `n_given` tokens; None what has not been measured yet."""

    n_given: int
    ids: tuple[int, ...]
    n_params: int
    learning_rate: float
    one_by_one: OneByOne | None
    all_at_once: AllAtOnce | None

    @property
    def n_positions(self) -> int:
        """Positions with a next token to predict."""
        return len(self.ids) - 1

    @property
    def loss_difference(self) -> float | None:
        """The largest difference of a position's loss between both ways."""
        if self.one_by_one is None or self.all_at_once is None:
            return None
        return max(abs(a - b) for a, b in zip(self.one_by_one.losses, self.all_at_once.losses, strict=True))


class TrainingStep:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, ids: Sequence[int]) -> None:
        """A long text is cut to its beginning.

        Raises Refusal for another model than our tiny one, and for a text without a next token to predict.
        """
        model.check_prompt(ids)
        if model.name != TINY:
            raise Refusal("techniques.training_tiny_only", name=model.name)
        if len(ids) < 2:
            raise Refusal("techniques.training_too_short")
        self._model, self._n_given, self._ids = model, len(ids), tuple(ids[: MOST_POSITIONS + 1])
        self._n_params = parameters(model.shape).total
        self._read: dict[str, Tensor] = {}
        self._one_by_one: OneByOne | None = None
        self._all_at_once: AllAtOnce | None = None

    @property
    def result(self) -> TrainingResult:
        """What has been measured by now."""
        return TrainingResult(
            self._n_given, self._ids, self._n_params, LEARNING_RATE, self._one_by_one, self._all_at_once
        )

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot: the weights as read and as trained, their gradient, and activations."""
        config = self._model.config
        row = config.n_layers * (8 * config.d_model + 4 * config.d_ff) + 4 * config.vocab_size
        return Measurement("training step", self.points(), n_bytes=4 * (4 * self._n_params + len(self._ids) * row))

    def points(self) -> list[Callable[[], None]]:
        """The weights are read, the losses found one by one, and the step is made. A point may be done again."""
        return [self._read_weights, self._decode, self._train]

    def _read_weights(self) -> None:
        with closing(open_checkpoint(find_model(TINY))) as checkpoint:
            names = parameter_shapes(self._model.config)
            device = self._model.device.torch_device
            self._read = {name: checkpoint.tensor(name).to(device, torch.float32) for name in names}

    def _transformer(self, weights: dict[str, Tensor]) -> Transformer:
        return Transformer(
            self._model.config, weights.__getitem__, device=self._model.device.torch_device, packed=False
        )

    def _decode(self) -> None:
        transformer, losses = self._transformer(self._read), list[float]()
        cache, targets = transformer.new_cache(), self._targets()
        with Stopwatch(self._model.device) as watch:
            for place, token_id in enumerate(self._ids[:-1]):
                losses += _losses(logits_behind(transformer, [token_id], cache), targets[place : place + 1]).tolist()
        self._one_by_one = OneByOne(tuple(losses), watch.seconds, cache.used_bytes)

    def _train(self) -> None:
        device, targets = self._model.device, self._targets()
        weights = {name: tensor.clone().requires_grad_() for name, tensor in self._read.items()}
        before = self._cache(weights)
        kept = _Kept(weights.values())
        with torch.enable_grad():
            with Stopwatch(device) as forward, saved_tensors_hooks(kept.pack, lambda tensor: tensor):
                losses = _losses(self._logits(self._transformer(weights)), targets)
                loss = losses.mean()
            with Stopwatch(device) as backward:
                loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        gradients = {name: tensor.grad for name, tensor in weights.items() if tensor.grad is not None}
        with torch.no_grad(), Stopwatch(device) as update:
            for name, gradient in gradients.items():
                weights[name].sub_(gradient, alpha=LEARNING_RATE)
        after = self._cache(weights)
        with torch.no_grad():
            losses_after = _losses(self._logits(self._transformer(weights)), targets)
        n = len(self._ids) - 1
        old, new = before.columns(0, n), after.columns(0, n)
        self._all_at_once = AllAtOnce(
            losses=tuple(losses.tolist()),
            gradient_norm=float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm()),
            forward_seconds=forward.seconds,
            backward_seconds=backward.seconds,
            update_seconds=update.seconds,
            kept_bytes=kept.n_bytes,
            losses_after=tuple(losses_after.tolist()),
            cache_change=float((old - new).abs().max()),
            cache_magnitude=float(old.abs().max()),
        )

    def _cache(self, weights: dict[str, Tensor]) -> KVCache:
        """Keys and values of the text under these weights."""
        with torch.no_grad():
            transformer = self._transformer(weights)
        cache = transformer.new_cache()
        fill(transformer, self._ids[:-1], cache)
        return cache

    def _logits(self, transformer: Transformer) -> Tensor:
        ids = torch.tensor([self._ids[:-1]], device=transformer.device)  # (1, n)
        return transformer.logits(transformer.hidden(ids)[0])  # (n, vocab)

    def _targets(self) -> Tensor:
        return torch.tensor(self._ids[1:], device=self._model.device.torch_device)


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats of each position: logits [n, vocab], targets [n] → [n]."""
    return F.cross_entropy(logits, targets, reduction="none")


class _Kept:
    """Counts the tensors that the forward pass keeps, each storage once, weights left out."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._storages: dict[int, Any] = {}
        self._weights = {tensor.untyped_storage().data_ptr() for tensor in weights}

    @property
    def n_bytes(self) -> int:
        """Of all of them."""
        return sum(storage.nbytes() for storage in self._storages.values())

    def pack(self, tensor: Tensor) -> Tensor:
        """A hook that keeps a tensor as it is."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self._storages[storage.data_ptr()] = storage  # held, so that no other takes its address
        return tensor
