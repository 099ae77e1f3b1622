"""The operators of one layer in one pass, in order: their shapes, and what each computes, reads and writes.

The costs are those of `core.estimate.traffic`, which has each product of all layers together, in one layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from core.estimate.derivation import TWO, Derivation, Factor, Term
from core.estimate.flops import attention_costs
from core.estimate.symbols import merged
from core.estimate.traffic import Operator, Pass, operators
from core.estimate.weights import weights
from core.model.load import LanguageModel

JOINED = {"qkv": ("q_proj", "k_proj", "v_proj"), "o_proj": ("o_proj",), "gate_up": ("gate", "up"), "down": ("down",)}
"""What this model multiplies in one product, and the tensors it consists of."""
FUSED = ("scores", "softmax", "gathering")
"""What several new positions at once compute in one kernel."""
_TERMS = {"q_proj": "queries", "k_proj": "keys_and_values", "v_proj": "keys_and_values"}
_SUMMED = ("flops", "weights_read", "kv_read", "kv_written", "activations_read", "activations_written")


class Operand(NamedTuple):
    """A tensor that goes in or comes out: its symbol, and each axis by its symbol and size."""

    symbol: str
    axes: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape in numbers."""
        return tuple(size for _, size in self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOperator:
    """One operator of one pass.

    Attributes:
        inputs, output: the tensors, as they are.
        cost: FLOP and bytes; all 0 where it is no matrix product (the cache's new rows are written by one of these).
        flops: the product's FLOP as a formula; None for what is no product.
        n_rows: rows that meet what is read once: the new positions, or for keys and values these of all query heads
            that share a KV head. One row is a matrix–vector product.
    """

    name: str
    inputs: tuple[Operand, ...]
    output: Operand
    cost: Operator
    flops: Derivation | None = None
    n_rows: int = 0

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""
        return self.flops is not None


def summed(name: str, costs: Iterable[Operator]) -> Operator:
    """Several operators as one."""
    listed = list(costs)
    return Operator(name, None, **{field: sum(getattr(cost, field) for cost in listed) for field in _SUMMED})


def layer_operators(model: LanguageModel, made: Pass) -> tuple[LayerOperator, ...]:
    """The operators of any layer in a pass over one sequence, in the order in which they run."""
    config, costs = model.config, _costs(model, made)
    new, n = ("n_new", made.n_new), ("n", made.n_past + made.n_new)
    B, h, n_kv = ("B", made.batch), ("h", config.n_heads), ("n_kv", config.n_kv_heads)
    d, d_h, d_ff = ("d", config.d_model), ("d_h", config.head_dim), ("d_ff", config.d_ff)
    joined, both = ("(h+2n_kv)·d_h", (h[1] + 2 * n_kv[1]) * d_h[1]), ("2d_ff", 2 * d_ff[1])
    width = ("h·d_h", h[1] * d_h[1])
    x = Operand("X", (B, new, d))
    q, k, v = (Operand(name, (B, heads, new, d_h)) for name, heads in (("Q", h), ("K", n_kv), ("V", n_kv)))
    keys, values = (Operand(name, (B, n_kv, n, d_h)) for name in "KV")
    scores, weighed = (Operand(name, (B, h, new, n)) for name in "SA")
    gathered = Operand("O", (B, h, new, d_h))
    up, inner = Operand("X", (B, new, both)), Operand("X", (B, new, d_ff))
    shared = made.n_new * config.n_heads // config.n_kv_heads

    def product(name: str, *inputs: Operand, output: Operand, n_rows: int = made.n_new) -> LayerOperator:
        formula = _flops(model, made, name)
        return LayerOperator(name=name, inputs=inputs, output=output, cost=costs[name], flops=formula, n_rows=n_rows)

    def small(name: str, *inputs: Operand, output: Operand) -> LayerOperator:
        return LayerOperator(name=name, inputs=inputs, output=output, cost=costs.get(name, Operator(name, 0, 0)))

    is_converted = model.transformer.activation_dtype != model.transformer.dtype
    listed = [
        small("attention_norm", x, output=x),
        product("qkv", x, Operand("W", (joined, d)), output=Operand("X", (B, new, joined))),
        small("qk_norm", q, k, output=q) if config.qk_norm else None,
        small("rotary", q, k, output=q),
        small("kv_write", k, v, output=keys),
        small("kv_convert", keys, values, output=keys) if is_converted else None,
        product("scores", q, keys, output=scores, n_rows=shared),
        small("softmax", scores, output=weighed),
        product("gathering", weighed, values, output=gathered, n_rows=shared),
        product("o_proj", Operand("O", (B, new, width)), Operand("W", (d, width)), output=x),
        small("attention_add", x, x, output=x),
        small("mlp_norm", x, output=x),
        product("gate_up", x, Operand("W", (both, d)), output=up),
        small("silu", up, output=inner),
        product("down", inner, Operand("W", (d, d_ff)), output=x),
        small("mlp_add", x, x, output=x),
    ]
    return tuple(one for one in listed if one is not None)


def head_operators(model: LanguageModel, made: Pass) -> tuple[LayerOperator, ...]:
    """What stands behind the last layer: its norm and the output head, for one position."""
    d, vocabulary = ("d", model.config.d_model), ("V", model.config.vocab_size)
    x, logits = Operand("X", (("B", 1), d)), Operand("X", (("B", 1), vocabulary))
    table = next(weight for weight in weights(model.shape) if weight.multiplies and weight.group is None)
    formula = Derivation("C", (Term((TWO, *table.factors)),), "FLOP", source="counted")
    return (
        LayerOperator(name="final_norm", inputs=(x,), output=x, cost=Operator("final_norm", None, 0)),
        LayerOperator(
            name="head",
            inputs=(x, Operand("W", (vocabulary, d))),
            output=logits,
            cost=operators(model.shape, made)[-1],
            flops=formula,
            n_rows=1,
        ),
    )


def _costs(model: LanguageModel, made: Pass) -> dict[str, Operator]:
    """The costs of one of the layers, which are all alike: tensors that are multiplied in one product are one."""
    n_layers = model.config.n_layers
    own = {one.name: one for one in operators(model.shape, made) if one.group is not None}
    own = {
        name: one._replace(**{field: getattr(one, field) // n_layers for field in _SUMMED}) for name, one in own.items()
    }
    costs = {
        # The joined tensors meet the same input, which is read once. The cache's rows are written by a step of its own.
        name: summed(name, (own[part] for part in parts))._replace(
            group=0, kv_written=0, activations_read=own[parts[0]].activations_read
        )
        for name, parts in JOINED.items()
    }
    written = sum(own[part].kv_written for part in JOINED["qkv"])
    return {**costs, **{name: own[name] for name in FUSED if name in own}} | {
        "kv_write": Operator("kv_write", 0, 0, kv_written=written)
    }


def _flops(model: LanguageModel, made: Pass, name: str) -> Derivation:
    """A product's FLOP in one layer, out of the factors that its cost is reckoned from."""
    new, n = Factor("n", made.n_new, "new"), Factor("n", made.n_past + made.n_new)
    if name in JOINED:
        own = {weight.name: weight for weight in weights(model.shape)}
        products = [(_TERMS.get(part, ""), (new, *own[part].factors[1:])) for part in JOINED[name]]
    else:
        (cost,) = attention_costs(model.shape, absorbed=False)
        products = [("", (new, n, *getattr(cost, name)[1:]))]
    terms = tuple(Term((TWO, *factors), term) for term, factors in merged(model.shape, products))
    return Derivation("C", terms, "FLOP", source="counted")
