"""Answers about compute, by the estimator."""

from __future__ import annotations

from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.estimate.query import changed, shape_numbers
from core.estimate.shape import ModelShape
from core.estimate.speculative import tokens_per_pass
from core.estimate.traffic import Operator, Pass, operators
from core.estimate.weights import parameters
from core.questions.question import SHORT_CONTEXT, Given, Outcome, Quantity

ATTENTION = ("scores", "gathering")
PROJECTIONS = ("k_proj", "v_proj")


def flops_of(made: tuple[Operator, ...], names: tuple[str, ...]) -> int:
    """FLOP of the operators of these names."""
    return sum(operator.flops for operator in made if operator.name in names)


def dense_or_large(given: Given) -> Outcome:
    """FLOP of a decode step of a model with experts in times those of a dense one, against the ratio of their sizes."""
    ours, other = (decode_flops(shape, given.n) for shape in (given.shape, given.other_shape))
    counts, other_counts = parameters(given.shape), parameters(given.other_shape)
    facts = {
        "total": Quantity(counts.total, ""),
        "active": Quantity(counts.active, ""),
        "other_total": Quantity(other_counts.total, ""),
        "flops": Quantity(ours, "FLOP"),
        "other_flops": Quantity(other, "FLOP"),
    }
    return Outcome(answer=ours / other, believed=counts.total / other_counts.total, facts=facts)


def doubled_prompt(given: Given) -> Outcome:
    """How many times the FLOP of attention a prompt of twice the length takes, however its score table is kept."""
    once, twice = (operators(given.shape, Pass(n_new=n, of_prefix=True)) for n in (given.n, 2 * given.n))
    table = sum(operator.activations_written for operator in twice if operator.name == "scores")
    flops, more = flops_of(once, ATTENTION), flops_of(twice, ATTENTION)
    facts = {
        "flops": Quantity(flops, "FLOP"),
        "more": Quantity(more, "FLOP"),
        "table": Quantity(table, "B"),
        "kv": Quantity(kv_bytes(given.shape, n_tokens=2 * given.n), "B"),
    }
    return Outcome(answer=more / flops, believed=2.0, facts=facts)


def contexts(given: Given) -> tuple[int, ...]:
    """Four context lengths up to the given one."""
    return SHORT_CONTEXT, given.n // 4, given.n // 2, given.n


def growing_step(given: Given) -> Outcome:
    """FLOP of a decode step along the context, in times those of the first one."""
    first, *others = (decode_flops(given.shape, n) for n in contexts(given))
    attention = flops_of(operators(given.shape, Pass(n_new=1, n_past=given.n - 1)), ATTENTION)
    facts = {
        "first": Quantity(first, "FLOP"),
        "last": Quantity(others[-1], "FLOP"),
        "share": Quantity(100 * attention / others[-1], "percent"),
    }
    return Outcome(answer=tuple(flops / first for flops in others), facts=facts)


def multi_head(shape: ModelShape) -> ModelShape:
    """The same model with keys and values of its own for every query head."""
    return changed(shape, {"n_kv_heads": shape_numbers(shape)["n_heads"]})


def shared_heads(given: Given) -> Outcome:
    """Which percentage of the FLOP of scores and weighted sums is left when query heads share keys and values."""
    whole, shared = (
        operators(shape, Pass(n_new=1, n_past=given.n - 1)) for shape in (multi_head(given.shape), given.shape)
    )
    left = {names: flops_of(shared, names) / flops_of(whole, names) for names in (ATTENTION, PROJECTIONS)}
    numbers = shape_numbers(given.shape)
    facts = {
        "heads": Quantity(numbers["n_heads"], ""),
        "kv_heads": Quantity(numbers["n_kv_heads"], ""),
        "flops": Quantity(flops_of(shared, ATTENTION), "FLOP"),
        "projections": Quantity(100 * left[PROJECTIONS], "percent"),
        "cache": Quantity(
            100 * kv_bytes(given.shape, n_tokens=given.n) / kv_bytes(multi_head(given.shape), n_tokens=given.n),
            "percent",
        ),
    }
    return Outcome(answer=100 * left[ATTENTION], believed=100 * numbers["n_kv_heads"] / numbers["n_heads"], facts=facts)


def drafted_tokens(given: Given) -> Outcome:
    """Tokens that a pass over a draft yields, against every drafted token counted on its own."""
    alpha = given.alpha_percent / 100
    right = tokens_per_pass(alpha, given.gamma)
    facts = {"right": Quantity(right, "tokens"), "all": Quantity(100 * alpha**given.gamma, "percent")}
    return Outcome(answer=right, believed=1 + alpha * given.gamma, facts=facts)
