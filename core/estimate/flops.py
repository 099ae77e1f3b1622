"""Compute of prefill and decode, by the chapter's formula and counted product by product.

A multiply-add is 2 FLOP and only matrix products count: norms, rotary positions, softmax, biases and the look-up in the
input table do not. Figures are in FLOP and, with `batch`, for the whole batch. Lengths and batch may be numpy arrays.
Each product stands in one place: those with weights in `core.estimate.weights`, those of attention here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from core.estimate.derivation import FOUR, TWO, Derivation, Factor, Term
from core.estimate.elementwise import Numbers, exact, larger
from core.estimate.shape import LatentAttention, ModelShape
from core.estimate.symbols import d_model, group_symbols, merged
from core.estimate.weights import parameters, weights

C_EXACT, C_DECODE, C_PREFILL = "C_{\\mathrm{exact}}", "C_{\\mathrm{decode}}", "C_{\\mathrm{prefill}}"
# Which (query, key) pairs a pass counts: the whole rectangle that a plain product computes, or those that the causal
# mask and the window leave.
Pairs = Literal["square", "causal"]


class AttentionCost(NamedTuple):
    """What one (query, key) pair costs in all layers of a group: a product with the key, one with the value."""

    group: int
    scores: tuple[Factor, ...]
    gathering: tuple[Factor, ...]
    multiply_adds: int
    window: int | None
    label: str


@lru_cache(maxsize=256)
def attention_costs(shape: ModelShape, absorbed: bool) -> tuple[AttentionCost, ...]:
    """The costs of attention, group by group; groups without attention are left out.

    A latent attention compares queries with the latents themselves when its up-projections are absorbed into query and
    output (decode), and with keys and values written out per head when they are not (prefill).
    """
    costs = []
    for position, symbols in enumerate(group_symbols(shape)):
        attention, L = symbols.group.attention, symbols["L"]
        if attention is None:
            continue
        h = symbols["h"]
        if not isinstance(attention, LatentAttention):
            key, value = symbols["d_h"], symbols.factors.get("d_v", symbols["d_h"])
        elif absorbed:
            key, value = symbols["latent"], symbols["r_kv"]
        else:
            key, value = symbols["qk"], symbols["d_v"]
        amounts = [int(factor.amount) for factor in (L, h, key, value)]
        multiply_adds = amounts[0] * amounts[1] * (amounts[2] + amounts[3])
        costs.append(
            AttentionCost(position, (L, h, key), (L, h, value), multiply_adds, attention.window, symbols.label)
        )
    return tuple(costs)


@lru_cache(maxsize=256)
def weights_multiplied(shape: ModelShape) -> tuple[int, int]:
    """Weights that one position is multiplied with: in all layers together (experts: the chosen ones), in the head."""
    multiplied = [weight for weight in weights(shape) if weight.multiplies]
    return (
        sum(weight.active for weight in multiplied if weight.group is not None),
        sum(weight.active for weight in multiplied if weight.group is None),
    )


def decode_flops(shape: ModelShape, n_tokens: Numbers, batch: Numbers = 1) -> Numbers:
    """One decode step: the new token is the n-th, and attends to min(n, W) positions in a layer with window W."""
    n, batch = exact(n_tokens), exact(batch)
    return batch * (layers_flops(shape, 1, n - 1, pairs="causal", absorbed=True) + head_flops(shape))


def prefill_flops(
    shape: ModelShape, n_tokens: Numbers, batch: Numbers = 1, *, causal: bool = False, chunk: int | None = None
) -> Numbers:
    """A prefill of n positions, only the last of them through the head.

    Args:
        causal: count the pairs that the mask and windows leave, not the n×n square of every layer.
        chunk: positions a pass, where the prompt goes through in parts. Each part meets all before it; the sum of the
            parts is the whole with `causal`, and less than the square without. Latents count as expanded once.
    """
    pairs: Pairs = "causal" if causal else "square"
    n, batch = exact(n_tokens), exact(batch)
    if chunk is None:
        return batch * (layers_flops(shape, n, 0, pairs=pairs) + head_flops(shape))
    parts = [(min(chunk, n - begin), begin) for begin in range(0, n, chunk)]
    return batch * (sum(layers_flops(shape, *part, pairs=pairs) for part in parts) + head_flops(shape))


def layers_flops(
    shape: ModelShape, n_new: Numbers, n_past: Numbers, *, pairs: Pairs = "square", absorbed: bool = False
) -> Numbers:
    """All layers for `n_new` positions behind `n_past` cached ones, one sequence."""
    in_layers, _ = weights_multiplied(shape)
    attention = sum(
        cost.multiply_adds * attended_pairs(n_new, n_past, cost.window, pairs)
        for cost in attention_costs(shape, absorbed)
    )
    return 2 * (n_new * in_layers + attention)


def head_flops(shape: ModelShape, n_rows: Numbers = 1) -> Numbers:
    """The output head for `n_rows` positions; only the last one is needed to choose a token."""
    return 2 * n_rows * weights_multiplied(shape)[1]


def attended_pairs(n_new: Numbers, n_past: Numbers, window: int | None = None, pairs: Pairs = "causal") -> Numbers:
    """(query, key) pairs of one layer and head that count."""
    if pairs == "square":
        return n_new * (n_past + n_new)
    return _pairs_up_to(n_past + n_new, window) - _pairs_up_to(n_past, window)


def _pairs_up_to(n: Numbers, window: int | None) -> Numbers:
    """n(n+1)/2 pairs of n positions, less those that lie further back than the window: (n−W)(n−W+1)/2."""
    inside = n * (n + 1) // 2
    if window is None:
        return inside
    outside = larger(n - window, 0)
    return inside - outside * (outside + 1) // 2


def attended_pairs_derivation(n_new: int, n_past: int, window: int | None = None) -> Derivation:
    """The first new position sees n_past + 1 keys, the next one more, and so on: n_new·n_past + n_new(n_new + 1)/2.

    With a window, what lies further back than W is taken off again: (n−W)(n−W+1)/2 pairs of all n positions, of which
    those of the first n_past belonged to earlier passes.
    """
    new, past, one_more = Factor("n", n_new, "new"), Factor("n", n_past, "past"), Factor("n", n_new, "new", plus=1)
    terms = [Term((new, past), "pairs_behind"), Term((new, one_more), "pairs_among", over=2)]
    for n, sign, name in ((n_past + n_new, -1, "pairs_beyond"), (n_past, 1, "pairs_beyond_before")):
        if window is not None and n > window:
            beyond = (Factor("n", n - window, name), Factor("n", n - window, name, plus=1))
            terms.append(Term(beyond, name, sign=1 if sign > 0 else -1, over=2))
    return Derivation("A", tuple(terms), "pairs", source="counted")


def layers_terms(
    shape: ModelShape, rows: tuple[Factor, ...], pairs: Iterable[tuple[Factor, ...]], *, absorbed: bool = False
) -> tuple[Term, ...]:
    """The matrix products of all layers as terms, two FLOP a multiply-add; equal products of one kind are one term.

    Args:
        rows: factors whose product is how many positions are multiplied with the weights.
        pairs: for each group with attention, factors whose product is how many pairs it has.
    """
    costs = {cost.group: (cost, of) for cost, of in zip(attention_costs(shape, absorbed), pairs, strict=True)}
    products: list[tuple[str, tuple[Factor, ...]]] = []
    for group in range(len(shape.groups)):
        own = [weight for weight in weights(shape) if weight.group == group and weight.multiplies]
        products += [(weight.term, (*rows, *weight.factors)) for weight in own if weight.part == "attention"]
        if group in costs:
            cost, of = costs[group]
            products += [("scores_and_gathering", (*of, *factors)) for factors in (cost.scores, cost.gathering)]
        for weight in own:
            if weight.part != "attention":
                chosen = (Factor("k", weight.experts.n_active),) if weight.experts else ()
                products.append((weight.term, (*rows, *chosen, *weight.factors)))
    return tuple(Term((TWO, *factors), name) for name, factors in merged(shape, products))


def head_term(shape: ModelShape, rows: tuple[Factor, ...]) -> Term:
    """The product with the output head; a tied head is the input table, and multiplies all the same."""
    return Term((TWO, *rows, Factor("V", shape.vocab_size), d_model(shape)), "head")


def decode_derivation(shape: ModelShape, n_tokens: int, batch: int = 1) -> Derivation:
    """`decode_flops`, product by product."""
    B = (Factor("B", batch),)
    pairs = [(*B, attended(n_tokens, cost.window)) for cost in attention_costs(shape, True)]
    return Derivation(
        C_DECODE, (*layers_terms(shape, B, pairs, absorbed=True), head_term(shape, B)), "FLOP", source="counted"
    )


def attended(n_tokens: int, window: int | None) -> Factor:
    """How many positions a query at n sees: n, or the window where that is smaller."""
    if window is None or window >= n_tokens:
        return Factor("n", n_tokens)
    return Factor("W", window)


def prefill_derivation(shape: ModelShape, n_tokens: int, batch: int = 1, *, causal: bool = False) -> Derivation:
    """`prefill_flops` of a whole prompt, product by product; causal pairs as A, which has its own derivation."""
    B, n = Factor("B", batch), Factor("n", n_tokens)
    square = (B, Factor("n", n_tokens, power=2))
    pairs = [
        (
            B,
            Factor(
                "A",
                attended_pairs(n_tokens, 0, cost.window),
                cost.label if cost.window and cost.window < n_tokens else "",
            ),
        )
        if causal
        else square
        for cost in attention_costs(shape, False)
    ]
    return Derivation(
        C_PREFILL, (*layers_terms(shape, (B, n), pairs), head_term(shape, (B,))), "FLOP", source="counted"
    )


def step_flops_derivation(shape: ModelShape, passes: Iterable[tuple[int, int]]) -> Derivation:
    """A step of one or more passes (n_new, n_past) through the layers, and its last position through the head."""
    terms: list[Term] = []
    for n_new, n_past in passes:
        new = Factor("n", n_new, "new")
        pairs = [(new, Factor("n", n_past + n_new))] * len(attention_costs(shape, False))
        terms.extend(layers_terms(shape, (new,), pairs))
    return Derivation(C_EXACT, (*terms, head_term(shape, (Factor("n", 1, "out"),))), "FLOP", source="counted")


@lru_cache(maxsize=256)
def chapter_params(shape: ModelShape) -> int:
    """The chapter's P: all parameters; with experts the active ones and the input table, which the chapter counts."""
    counts = parameters(shape)
    if not shape.has_experts:
        return counts.total
    return counts.active + (0 if shape.tied_head else counts.input_table)


def decode_flops_chapter(shape: ModelShape, n_tokens: Numbers, batch: Numbers = 1) -> Numbers:
    """The chapter's C_decode, with P counting the input table and d = d_model."""
    return decode_chapter_derivation(shape, exact(n_tokens), exact(batch)).value


def decode_chapter_derivation(shape: ModelShape, n_tokens: Any, batch: Any = None) -> Derivation:
    """C_decode = B(2P + 4Lnd); of one sequence without `batch`."""
    P, n, L = Factor("P", chapter_params(shape)), Factor("n", n_tokens), Factor("L", shape.n_layers)
    B = () if batch is None else (Factor("B", batch),)
    terms = Term((TWO, *B, P), "parameters"), Term((FOUR, *B, L, n, d_model(shape)), "attention")
    return Derivation(C_DECODE, terms, "FLOP", source="chapter")


def prefill_flops_chapter(shape: ModelShape, n_tokens: Numbers, batch: Numbers = 1) -> Numbers:
    """The chapter's C_prefill, with P counting the input table and d = d_model."""
    return prefill_chapter_derivation(shape, exact(n_tokens), exact(batch)).value


def prefill_chapter_derivation(shape: ModelShape, n_tokens: Any, batch: Any = None) -> Derivation:
    """C_prefill = B(2nP + 4Ln²d); of one sequence without `batch`."""
    P, n, n_squared = Factor("P", chapter_params(shape)), Factor("n", n_tokens), Factor("n", n_tokens, power=2)
    L, B = Factor("L", shape.n_layers), () if batch is None else (Factor("B", batch),)
    terms = Term((TWO, *B, n, P), "parameters"), Term((FOUR, *B, L, n_squared, d_model(shape)), "attention")
    return Derivation(C_PREFILL, terms, "FLOP", source="chapter")
