"""Which term a technique changes: the terms of one request before and after, by the estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes, kv_dtypes, weight_dtypes
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.estimate.speculative import tokens_per_pass
from core.estimate.weights import weight_bytes
from core.questions.question import Given, Outcome, Quantity

ROWS = ("temperature", "weights", "cache", "draft", "thought")
"""Techniques."""
OPTIONS = ("none", "weights", "cache", "passes", "length")
"""What they may change: the names of `Terms`, and none of them."""
SHORT_ANSWER, LONG_THOUGHT = 200, 8000
"""Tokens that are written without a chain of thought, and with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: everything that a technique sets."""

    temperature: float = 0.0
    weight_dtypes: WeightDtypes = BF16_WEIGHTS
    kv_dtypes: KvDtypes = BF16_KV
    gamma: int = 0
    n_new: int = SHORT_ANSWER


class Terms(NamedTuple):
    """What a request costs, term by term: bytes of all weights, bytes of a cached position, passes a token, tokens."""

    weights: int
    cache: int
    passes: float
    length: int


def terms(shape: ModelShape, request: Request, given: Given) -> Terms:
    """The terms of a request behind a prompt of `given.n` tokens. No term asks for the temperature."""
    return Terms(
        weights=weight_bytes(shape, request.weight_dtypes),
        cache=kv_bytes(shape, n_tokens=1, dtypes=request.kv_dtypes),
        passes=1 / tokens_per_pass(given.alpha_percent / 100, request.gamma),
        length=given.n + request.n_new,
    )


def with_technique(name: str, given: Given) -> Request:
    """A plain request with one technique applied."""
    plain = Request()
    applied = {
        "temperature": replace(plain, temperature=1.0),
        "weights": replace(plain, weight_dtypes=weight_dtypes("int4")),
        "cache": replace(plain, kv_dtypes=kv_dtypes("q8_0")),
        "draft": replace(plain, gamma=given.gamma),
        "thought": replace(plain, n_new=LONG_THOUGHT),
    }
    return applied[name]


def changed_term(before: Terms, after: Terms) -> str:
    """The one term that differs, or "none". Raises ValueError where more than one does."""
    differing = [name for name in Terms._fields if getattr(before, name) != getattr(after, name)]
    if len(differing) > 1:
        raise ValueError(f"more than one term changed: {differing}")
    return differing[0] if differing else "none"


def which_term(given: Given) -> Outcome:
    """For each technique the term it changes."""
    shape = given.shape
    before = terms(shape, Request(), given)
    after = {name: terms(shape, with_technique(name, given), given) for name in ROWS}
    facts = {
        "weights": Quantity(before.weights, "B"),
        "weights_after": Quantity(after["weights"].weights, "B"),
        "cache": Quantity(before.cache, "B"),
        "cache_after": Quantity(after["cache"].cache, "B"),
        "per_pass": Quantity(1 / after["draft"].passes, "tokens"),
        "kv": Quantity(kv_bytes(shape, n_tokens=before.length), "B"),
        "kv_after": Quantity(kv_bytes(shape, n_tokens=after["thought"].length), "B"),
    }
    return Outcome(answer=tuple(changed_term(before, after[name]) for name in ROWS), facts=facts)
