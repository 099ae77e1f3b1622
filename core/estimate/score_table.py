"""Plain attention in a prefill, which writes its n×n table of scores out: FLOP, bytes, and what that does.

The table is written by the product with the keys, read and written by softmax, and read by the product with the values:
four times n² numbers a head, against 4·n²·d_h FLOP. So FLOP a byte tends to d_h/2 at two bytes a number, however long
the prompt: below the ridge of every GPU here. Keeping the table on the chip is what FlashAttention does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from core.estimate.elementwise import Numbers
from core.estimate.flops import attended_pairs, attention_costs, weights_multiplied
from core.estimate.kv import kv_bytes
from core.estimate.roofline import Roof
from core.estimate.shape import Attention, ModelShape

TABLE_PASSES = 4
"""How often a number of the table is moved: scores written and read, probabilities written and read."""
ACTIVATION_BYTES = 2


def attention_flops(shape: ModelShape, n_tokens: Numbers, batch: int = 1) -> Numbers:
    """FLOP of all layers' attention; a plain product computes the masked half too, and beyond windows."""
    costs = attention_costs(shape, False)
    return batch * sum(2 * cost.multiply_adds * attended_pairs(n_tokens, 0, pairs="square") for cost in costs)


def table_traffic(shape: ModelShape, n_tokens: Numbers, batch: int = 1) -> Numbers:
    """Bytes of the tables of all layers and heads, each number moved TABLE_PASSES times."""
    return batch * TABLE_PASSES * ACTIVATION_BYTES * _heads(shape) * n_tokens**2


def attention_traffic(shape: ModelShape, n_tokens: int, batch: int = 1) -> int:
    """Bytes of plain attention: the tables, queries in, outputs out, and keys and values as they are kept."""
    costs = attention_costs(shape, False)
    widths = sum(
        int(cost.scores[0].amount * cost.scores[1].amount * (cost.scores[2].amount + cost.gathering[2].amount))
        for cost in costs
    )
    kept = kv_bytes(_plain(shape), n_tokens=n_tokens, batch=batch)
    return int(table_traffic(shape, n_tokens, batch) + batch * ACTIVATION_BYTES * widths * n_tokens + kept)


def attention_intensity(shape: ModelShape, n_tokens: int) -> float:
    """FLOP a byte of plain attention; ZeroDivisionError for a model without any."""
    return float(attention_flops(shape, n_tokens) / attention_traffic(shape, n_tokens))


def intensity_limit(shape: ModelShape) -> float:
    """What that tends to: d_h/2, or a quarter of key and value width together."""
    return float(attention_flops(shape, 1) / table_traffic(shape, 1))


def table_bytes(shape: ModelShape, n_tokens: int, batch: int = 1) -> int:
    """Bytes of one layer's table, all heads: what has to be in memory at once, at the least."""
    heads = max((int(cost.scores[1].amount) for cost in attention_costs(shape, False)), default=0)
    return batch * ACTIVATION_BYTES * heads * n_tokens**2


def linear_seconds(shape: ModelShape, n_tokens: int, roof: Roof, batch: int = 1) -> float:
    """Seconds of all products with the layers' weights at the peak."""
    return batch * 2 * n_tokens * weights_multiplied(shape)[0] / roof.peak_flops


def outweighs_at(shape: ModelShape, roof: Roof) -> float | None:
    """The context from which moving the tables takes longer than all linear layers; None without attention.

    8·L·h·n²/ω = 2·n·P_layers/π, so n = P_layers/(4·L·h·I*): both grow with the batch alike.
    """
    one = table_traffic(shape, 1)
    return 2 * weights_multiplied(shape)[0] / (one * roof.ridge) if one else None


def _heads(shape: ModelShape) -> int:
    """Heads of all layers: L·h."""
    return sum(int(cost.scores[0].amount * cost.scores[1].amount) for cost in attention_costs(shape, False))


@lru_cache(maxsize=256)
def _plain(shape: ModelShape) -> ModelShape:
    """The model with keys and values per head, and every layer seeing all positions."""
    expanded = shape.with_expanded_latents
    groups = tuple(
        replace(group, attention=replace(group.attention, window=None))
        if isinstance(group.attention, Attention)
        else group
        for group in expanded.groups
    )
    return replace(expanded, groups=groups)
