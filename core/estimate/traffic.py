"""What each operator of a pass computes, reads and writes: the rows of a microscope, and the points of a roofline.

Weights are read once a pass, whatever the batch; every sequence reads its own cache. Activations are what goes into
and comes out of each product, kept in `activation_bytes` a number: fused kernels spare some of that traffic, so it is
an upper bound and stands apart from weights and cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes
from core.estimate.elementwise import whole
from core.estimate.flops import AttentionCost, attended_pairs, attention_costs
from core.estimate.kv import Row, kv_rows
from core.estimate.shape import ModelShape
from core.estimate.symbols import group_symbols
from core.estimate.weights import Weight, expected_distinct_experts, weights


class Operator(NamedTuple):
    """One kind of matrix product in all layers of a group, for the whole batch; FLOP and bytes.

    Attributes:
        name: the tensor it multiplies with (core.estimate.weights), or "scores" and "gathering".
        group: the group of layers, None for the output head.
        kv_read, kv_written: bytes of cached keys, values or latents; "scores" reads keys and "gathering" values; what
            a position leaves is written by the product that makes it.
        activations_read, activations_written: bytes that go in besides weights and cache, and that come out.
    """

    name: str
    group: int | None
    flops: int
    weights_read: int = 0
    kv_read: int = 0
    kv_written: int = 0
    activations_read: int = 0
    activations_written: int = 0

    @property
    def bytes_moved(self) -> int:
        """All bytes it reads and writes."""
        moved = self.weights_read + self.kv_read + self.kv_written
        return moved + self.activations_read + self.activations_written

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flops / self.bytes_moved


# Which product writes the cache's rows: of keys, of values, of latents with their rotary keys.
_WRITES = {"k_proj": 0, "v_proj": 1, "kv_down": 0}


class Pass(NamedTuple):
    """What goes through the layers at once: `n_new` positions of each sequence behind `n_past` cached ones.

    A pass of one position is a decode step: latents are absorbed, windows counted, the cache read, the new position's
    own row included. A longer one is a prefill: latents are expanded, every layer computes its whole rectangle, and of
    the cache only what was there before is read. `of_prefix` makes it a prefill whatever its length: a prompt of one
    token, or the one that its last chunk had left. A prefill that skips what the mask and windows hide sets
    `masked_pairs_count` to False.
    """

    n_new: int
    n_past: int = 0
    batch: int = 1
    weight_dtypes: WeightDtypes = BF16_WEIGHTS
    kv_dtypes: KvDtypes = BF16_KV
    activation_bytes: int = 2
    of_prefix: bool = False
    masked_pairs_count: bool = True

    @property
    def is_decode(self) -> bool:
        """Whether the pass is a decode step."""
        return self.n_new == 1 and not self.of_prefix

    def rows_read(self, window: int | None) -> int:
        """Cached positions that a layer reads, one sequence."""
        seen = self.n_past + self.n_new if self.is_decode else self.n_past
        return seen if window is None else min(seen, window)

    def rows_written(self, window: int | None) -> int:
        """Positions whose rows a layer writes and keeps, one sequence."""
        return self.n_new if window is None else min(self.n_new, window)


def operators(shape: ModelShape, made: Pass) -> tuple[Operator, ...]:
    """The products of a pass in order, layers of a kind together; FLOP, weights and cache add up to the pass's."""
    costs = iter(attention_costs(shape, absorbed=made.is_decode))
    listed: list[Operator] = []
    for position, symbols in enumerate(group_symbols(shape)):
        attention = symbols.group.attention
        rows = kv_rows(symbols, made.kv_dtypes) if attention is not None else ()
        for weight in weights(shape):
            if weight.group != position or not weight.multiplies:
                continue
            if attention is not None and weight.name == "o_proj":
                listed.extend(_attention(next(costs), rows, position, made))
            product = _product(weight, made.n_new * made.batch, made)
            if attention is not None and weight.name in _WRITES:
                kept = made.batch * made.rows_written(attention.window)
                product = product._replace(kv_written=kept * rows[_WRITES[weight.name]].n_bytes)
            listed.append(product)
    head = next(weight for weight in weights(shape) if weight.multiplies and weight.group is None)
    listed.append(_product(head, made.batch, made)._replace(name="head"))
    return tuple(listed)


def _product(weight: Weight, n_rows: int, made: Pass) -> Operator:
    """Rows times a matrix: `row` numbers go in for each, and as many come out as the matrix has rows."""
    copies = expected_distinct_experts(weight.experts, n_rows) if weight.experts else 1
    uses = n_rows * (weight.experts.n_active if weight.experts else 1)
    layers = int(weight.factors[0].value) if weight.group is not None else 1
    return Operator(
        weight.name,
        weight.group,
        flops=2 * n_rows * weight.active,
        weights_read=whole(copies * weight.bytes_of(made.weight_dtypes)),
        activations_read=uses * layers * weight.row * made.activation_bytes,
        activations_written=uses * (weight.size // weight.row) * made.activation_bytes,
    )


def _attention(cost: AttentionCost, rows: tuple[Row, ...], group: int, made: Pass) -> Iterator[Operator]:
    """Queries with keys, then weights with values: a number a pair on one side, the width of a head on the other.

    A latent is key and value at once and is read once, with the scores.
    """
    is_square = made.masked_pairs_count and not made.is_decode
    pairs = attended_pairs(made.n_new, made.n_past, cost.window, "square" if is_square else "causal")
    for position, (name, factors) in enumerate((("scores", cost.scores), ("gathering", cost.gathering))):
        layers, heads, width = (int(factor.amount) for factor in factors)
        of_heads = made.batch * layers * heads * made.n_new * width * made.activation_bytes
        of_pairs = made.batch * layers * heads * pairs * made.activation_bytes
        row_bytes = rows[position].n_bytes if position < len(rows) else 0
        yield Operator(
            name,
            group,
            flops=2 * made.batch * layers * heads * width * pairs,
            kv_read=made.batch * made.rows_read(cost.window) * row_bytes,
            activations_read=of_heads if name == "scores" else of_pairs,
            activations_written=of_pairs if name == "scores" else of_heads,
        )
