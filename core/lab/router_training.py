"""A router that has learned: a layer with experts is trained to do what one dense layer of the live model does.

Its inputs are the real hidden states of the model reading texts of ours, its targets what the dense feed-forward part
makes of them. Router and experts learn together by gradient, as in training a model, with or without the loss that
spreads the tokens over the experts: E·Σ_e f_e·P_e, f_e the share of choices that went to an expert, P_e its mean
probability (Switch Transformer, arXiv 2101.03961, equation 4); it is 1 where all are used alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.estimate.shape import Experts
from core.lab.routed_layer import RoutedLayer, choose_experts, probabilities, random_layer
from core.model.attention import AttentionWithin
from core.model.load import TINY_FOLDER, LanguageModel

TEXTS = TINY_FOLDER / "text"
SEQUENCE_TOKENS = 128
BATCH_TOKENS = 256
BALANCE = 0.3
"""What the balancing loss counts for beside the error, which begins at about 1. Models are trained with a tenth of it
and a million times as long."""
LEARNING_RATE = 2e-3


def sequences(model: LanguageModel, n_tokens: int) -> list[list[int]]:
    """Our texts as the model's ids, cut into sequences, `n_tokens` in all; as many as there are, if fewer."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(TEXTS.glob("*.txt"))]
    share = -(-n_tokens // len(texts))
    cut = []
    for text in texts:  # of each text as much
        ids = model.tokenizer.encode(text)[: min(share, n_tokens)]
        n_tokens -= len(ids)
        cut += [ids[begin : begin + SEQUENCE_TOKENS] for begin in range(0, len(ids), SEQUENCE_TOKENS)]
    return cut


def feed_forward_states(model: LanguageModel, ids: list[int], index: int) -> tuple[Tensor, Tensor]:
    """What goes into the feed-forward part of layer `index` for every position of a sequence, and what comes out.

    Both [n, d] in fp32; inputs are behind the layer's norm.
    """
    transformer, within = model.transformer, AttentionWithin(1)
    gathered: list[Tensor] = []

    def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        gathered.append(within.attend(layer, queries, keys_values))
        return gathered[-1]

    with torch.inference_mode():
        transformer.use_threads(len(ids))
        rotations = transformer.rotations([0], len(ids))
        x = transformer.embed(torch.tensor([ids], device=model.device.torch_device))  # (1, n) → (n, d)
        for below in range(index + 1):
            before, x = x, transformer.through_layer(below, x, rotations, attend)
        layer = transformer.layers[index]
        x = before + layer.attention_out(gathered[-1].flatten(1))  # (n, h, d_h) → (n, d)
        inputs = transformer.norm(x, layer.mlp_norm)
        outputs = layer.down(transformer.gated(layer.gate_up(inputs)))
    return inputs.float().clone(), outputs.float().clone()


class Training:
    """A router and its experts on the way. Steps are taken from one thread at a time."""

    def __init__(self, experts: Experts, inputs: Tensor, targets: Tensor, *, balanced: bool, seed: int = 0) -> None:
        """`inputs` and `targets` [N, d]; both are scaled to a mean square of 1, and so must be what is routed later."""
        self._experts, self._balanced = experts, balanced
        self._generator = torch.Generator(device=inputs.device).manual_seed(seed)
        self._inputs, self._targets = unit_scale(inputs), unit_scale(targets)
        d = inputs.shape[1]
        made = random_layer(experts, d, self._generator)
        router = torch.randn(experts.n_experts, d, generator=self._generator, device=inputs.device) * d**-0.5
        self.router, gate_up, down = (tensor.requires_grad_() for tensor in (router, made.gate_up, made.down))
        self._layer = RoutedLayer(gate_up, down)
        self._optimiser = torch.optim.Adam([self.router, gate_up, down], lr=LEARNING_RATE)

    @property
    def layer(self) -> RoutedLayer:
        """The experts as they are by now."""
        return RoutedLayer(self._layer.gate_up.detach(), self._layer.down.detach())

    def step(self) -> float:
        """One step on BATCH_TOKENS random positions. Returns the mean squared error before it: 1 for an output of 0."""
        rows = torch.randint(len(self._inputs), (BATCH_TOKENS,), generator=self._generator, device=self.router.device)
        x, targets = self._inputs[rows], self._targets[rows]
        shares = probabilities(self.router, x)
        routing = choose_experts(shares, self._experts.n_active)
        error = (self._layer(x, routing).outputs - targets).square().mean()
        loss = error + BALANCE * balance_loss(shares, routing.experts) if self._balanced else error
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(error.detach())


def balance_loss(shares: Tensor, chosen: Tensor) -> Tensor:
    """E·Σ_e f_e·P_e of probabilities [B, E] and choices [B, k]."""
    n_experts = shares.shape[1]
    choices = chosen.flatten().bincount(minlength=n_experts) / chosen.numel()  # (B, k) → (E)
    return n_experts * (choices * shares.mean(0)).sum()


def unit_scale(rows: Tensor) -> Tensor:
    """The same directions with a mean square of 1 over all of them."""
    return rows / rows.square().mean().sqrt()
