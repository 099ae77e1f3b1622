"""Compute of a pass over a dense model, by the chapter's formula and counted product by product.

A multiply-add is 2 FLOP and only matrix products count: norms, rotary positions, softmax, biases and the look-up in the
input table do not. Figures are in FLOP and for one sequence. Each formula stands in one place, its derivation.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.estimate.derivation import FOUR, THREE, TWO, Derivation, Factor, Term, shape
from core.model.config import ModelConfig

C_EXACT = "C_{\\mathrm{exact}}"


def layers_flops_exact(config: ModelConfig, n_new: int, n_past: int) -> int:
    """All layers for `n_new` positions behind `n_past` cached ones, as it is computed."""
    return Derivation(C_EXACT, layers_terms(config, n_new, n_past), "FLOP").whole


def layers_terms(config: ModelConfig, n_new: int, n_past: int) -> tuple[Term, ...]:
    """The matrix products of all layers, two FLOP a multiply-add.

    Every layer compares n_new queries with all n = n_past + n_new keys (the whole rectangle, the masked half included)
    and gathers as many values: two products of one size, as are queries and output, keys and values. The feed-forward
    part has three matrices: gate, up, down.
    """
    L, d, h, n_kv, d_h, d_ff, _ = shape(config)
    new, n = Factor("n", n_new, "new"), Factor("n", n_past + n_new)
    return (
        Term((TWO, TWO, new, L, d, h, d_h), "queries_and_output"),
        Term((TWO, TWO, new, L, d, n_kv, d_h), "keys_and_values"),
        Term((TWO, TWO, new, n, L, h, d_h), "scores_and_gathering"),
        Term((TWO, THREE, new, L, d, d_ff), "feed_forward"),
    )


def head_flops_exact(config: ModelConfig, n_rows: int = 1) -> int:
    """The output head for `n_rows` positions; only the last one is needed to choose a token."""
    return Derivation(C_EXACT, (head_term(config, n_rows),), "FLOP").whole


def head_term(config: ModelConfig, n_rows: int = 1) -> Term:
    """The product with the output head; a tied head is the input table, and multiplies all the same."""
    model = shape(config)
    return Term((TWO, Factor("n", n_rows, "out"), model.V, model.d), "head")


def step_flops_derivation(config: ModelConfig, passes: Iterable[tuple[int, int]]) -> Derivation:
    """A step of one or more passes (n_new, n_past) through the layers, and its last position through the head."""
    layers = (term for n_new, n_past in passes for term in layers_terms(config, n_new, n_past))
    return Derivation(C_EXACT, (*layers, head_term(config)), "FLOP")


def attended_pairs(n_new: int, n_past: int) -> int:
    """(query, key) pairs that count under the causal mask, in one layer and head."""
    return attended_pairs_derivation(n_new, n_past).whole


def attended_pairs_derivation(n_new: int, n_past: int) -> Derivation:
    """The first new position sees n_past + 1 keys, the next one more, and so on: n_new·n_past + n_new(n_new + 1)/2."""
    new, past, one_more = Factor("n", n_new, "new"), Factor("n", n_past, "past"), Factor("n", n_new, "new", plus=1)
    return Derivation("A", (Term((new, past), "pairs_behind"), Term((new, one_more), "pairs_among", over=2)))


def decode_flops_chapter(config: ModelConfig, n_params: int, n_tokens: int) -> int:
    """The chapter's C_decode, with P counting the input table and d = d_model."""
    return decode_chapter_derivation(config, n_params, n_tokens).whole


def decode_chapter_derivation(config: ModelConfig, n_params: int, n_tokens: int) -> Derivation:
    """C_decode = 2P + 4Lnd."""
    P, n, model = Factor("P", n_params), Factor("n", n_tokens), shape(config)
    terms = Term((TWO, P), "parameters"), Term((FOUR, model.L, n, model.d), "attention")
    return Derivation("C_{\\mathrm{decode}}", terms, "FLOP")


def prefill_flops_chapter(config: ModelConfig, n_params: int, n_tokens: int) -> int:
    """The chapter's C_prefill, with P counting the input table and d = d_model."""
    return prefill_chapter_derivation(config, n_params, n_tokens).whole


def prefill_chapter_derivation(config: ModelConfig, n_params: int, n_tokens: int) -> Derivation:
    """C_prefill = 2nP + 4Ln²d."""
    P, n, n_squared = Factor("P", n_params), Factor("n", n_tokens), Factor("n", n_tokens, power=2)
    model = shape(config)
    terms = Term((TWO, n, P), "parameters"), Term((FOUR, model.L, n_squared, model.d), "attention")
    return Derivation("C_{\\mathrm{prefill}}", terms, "FLOP")
