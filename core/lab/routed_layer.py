"""A feed-forward layer with experts that really runs: a router chooses, only what is chosen is multiplied, and counted.

Letters in the shape comments: B tokens, E experts, k chosen by each token, d hidden width, d_e width of one expert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from core.estimate.shape import Experts


class Routing(NamedTuple):
    """Which experts each token goes to [B, k], all different in a row, and with what weight [B, k]."""

    experts: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """What came out of the layer [B, d], and what it had to read.

    Attributes:
        touched: the experts that were multiplied with, rising.
        bytes_read: of their matrices, added up as each was multiplied with.
    """

    outputs: Tensor
    touched: tuple[int, ...]
    bytes_read: int


class RoutedLayer:
    """E gated feed-forward parts (SwiGLU), of which a token uses k. The router is not part of it."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        """`gate_up` [E, 2·d_e, d], gates before ups; `down` [E, d, d_e]."""
        self.gate_up, self.down = gate_up, down

    @property
    def n_experts(self) -> int:
        """E."""
        return self.gate_up.shape[0]

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert's matrices."""
        return (self.gate_up.nbytes + self.down.nbytes) // self.n_experts

    def __call__(self, x: Tensor, routing: Routing) -> Passed:
        """Sends x [B, d] through the chosen experts, expert by expert: each one's matrices are read once."""
        n_chosen = routing.experts.shape[1]
        chosen, weights = routing.experts.flatten(), routing.weights.flatten()  # (B, k) → (B·k)
        order = chosen.argsort(stable=True)
        rows, weights = order // n_chosen, weights[order]
        outputs = torch.zeros_like(x)
        touched, n_bytes, begin = [], 0, 0
        for expert, n_rows in enumerate(chosen.bincount(minlength=self.n_experts).tolist()):
            if not n_rows:
                continue
            mine = slice(begin, begin + n_rows)
            gate_up, down = self.gate_up[expert], self.down[expert]
            gate, up = F.linear(x[rows[mine]], gate_up).chunk(2, -1)  # (rows, d) → (rows, d_e) twice
            made = F.linear(F.silu(gate) * up, down)  # (rows, d_e) → (rows, d)
            outputs = outputs.index_add(0, rows[mine], made * weights[mine, None])
            touched.append(expert)
            n_bytes += gate_up.nbytes + down.nbytes
            begin += n_rows
        return Passed(outputs, tuple(touched), n_bytes)


def random_layer(experts: Experts, d_model: int, generator: torch.Generator) -> RoutedLayer:
    """A layer of random weights, so spread that outputs are about as large as inputs."""
    E, d_e = experts.n_experts, experts.d_expert

    def matrices(n_out: int, n_in: int) -> Tensor:
        made: Tensor = torch.randn(E, n_out, n_in, generator=generator, device=generator.device) / n_in**0.5
        return made

    return RoutedLayer(matrices(2 * d_e, d_model), matrices(d_model, d_e))


def uniform_routing(n_tokens: int, experts: Experts, generator: torch.Generator) -> Routing:
    """Each token on its own takes k of E experts, every set of k equally likely; all with weight 1/k."""
    draws = torch.rand(n_tokens, experts.n_experts, generator=generator, device=generator.device)
    chosen = draws.topk(experts.n_active, dim=1).indices  # (B, E) → (B, k)
    return Routing(chosen, torch.full(chosen.shape, 1 / experts.n_active, device=chosen.device))


def probabilities(router: Tensor, x: Tensor) -> Tensor:
    """The softmax of a linear router [E, d] for x [B, d]: [B, E]."""
    shares: Tensor = F.linear(x, router).softmax(-1)
    return shares


def choose_experts(shares: Tensor, n_active: int) -> Routing:
    """The k likeliest of each row of probabilities [B, E], their weights made to add up to 1 (as Mixtral's are)."""
    weights, chosen = shares.topk(n_active, dim=1)  # (B, E) → (B, k)
    return Routing(chosen, weights / weights.sum(1, keepdim=True))
