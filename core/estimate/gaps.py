"""Where the chapter's compute formulas and the exact count part, piece by piece: the pieces add up to the whole gap.

The chapter multiplies every position with every parameter and takes attention to be d wide: 2P + 4Lnd. Exactly, tables
are looked up, norms and biases multiply nothing that counts, the head sees the last position only, and attention is as
wide as its heads and as long as its windows.
"""

from __future__ import annotations

from typing import NamedTuple

from core.estimate.flops import chapter_params, decode_flops, prefill_flops, weights_multiplied
from core.estimate.shape import ModelShape
from core.estimate.weights import parameters


class Gap(NamedTuple):
    """FLOP that the chapter counts beyond the exact figure, for one reason; below 0 where it counts too few."""

    look_up: int
    small: int
    head: int
    attention: int

    @property
    def whole(self) -> int:
        """The chapter's figure less the exact one."""
        return sum(self)


def decode_gap(shape: ModelShape, n_tokens: int, batch: int = 1) -> Gap:
    """One decode step, whose one position a sequence goes through the head in both counts."""
    attention = decode_flops(shape, n_tokens, batch) - 2 * batch * sum(weights_multiplied(shape))
    return _gap(shape, batch, 1, 4 * batch * shape.n_layers * n_tokens * shape.d_model - attention)


def prefill_gap(shape: ModelShape, n_tokens: int, batch: int = 1) -> Gap:
    """A prefill with the n×n square in every layer, as the chapter has it too."""
    in_layers, head = weights_multiplied(shape)
    attention = prefill_flops(shape, n_tokens, batch) - 2 * batch * (n_tokens * in_layers + head)
    return _gap(shape, batch, n_tokens, 4 * batch * shape.n_layers * n_tokens**2 * shape.d_model - attention)


def _gap(shape: ModelShape, batch: int, n_positions: int, attention: int) -> Gap:
    """The gap of `n_positions` a sequence, of which one goes through the head."""
    counts, (in_layers, head) = parameters(shape), weights_multiplied(shape)
    tables = counts.positions + (0 if shape.tied_head else counts.input_table)
    small = chapter_params(shape) - tables - in_layers - head
    return Gap(
        look_up=2 * batch * n_positions * tables,
        small=2 * batch * n_positions * small,
        head=2 * batch * (n_positions - 1) * head,
        attention=attention,
    )
