"""Answers about memory, by the estimator."""

from __future__ import annotations

from core.estimate.curves import first_context
from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, kv_dtypes
from core.estimate.estimate import Request
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.estimate.weights import parameters, weight_bytes
from core.estimate.wrong import wrong_formulas
from core.questions.question import Given, Outcome, Quantity

K = 1024


def mistaken(shape: ModelShape, name: str, n_tokens: int) -> float:
    """What a well-known mistake gives for this model; ValueError where it would make no difference."""
    for wrong in wrong_formulas(shape, n_tokens=n_tokens):
        if wrong.name == name:
            return float(wrong.value)
    raise ValueError(f"{name} is no mistake for {shape.name}")


def kv_of_a_token(given: Given) -> Outcome:
    """KV bytes of one token in bf16, against those of a cache with as many KV heads as query heads."""
    right = kv_bytes(given.shape, n_tokens=1)
    believed = mistaken(given.shape, "query_heads", 1)
    facts = {
        "right": Quantity(right, "B"),
        "wrong": Quantity(believed, "B"),
        "times": Quantity(believed / right, "times"),
    }
    return Outcome(answer=float(right), believed=believed, facts=facts)


def memory_of_experts(given: Given) -> Outcome:
    """Weight bytes of a model with experts in bf16, against those of the parameters that a token uses."""
    counts, right = parameters(given.shape), weight_bytes(given.shape, BF16_WEIGHTS)
    believed = mistaken(given.shape, "active_for_total", given.n)
    facts = {
        "total": Quantity(counts.total, ""),
        "active": Quantity(counts.active, ""),
        "share": Quantity(100 * counts.active / counts.total, "percent"),
        "right": Quantity(right, "B"),
    }
    return Outcome(answer=float(right), believed=believed, facts=facts)


def k_of(limit: int) -> int:
    """How many K a limit is called: thousands where it is a round number of them, though 128,000 is 125 · 1,024."""
    return limit // 1000 if limit % 1000 == 0 else round(limit / K)


def k_of_tokens(given: Given) -> Outcome:
    """Whether the context limit of a model counts its K as 1,024, as 1,000, or as neither."""
    limit = given.shape.context_limit
    k = k_of(limit)
    answer = {1000 * k: "thousand", K * k: "binary"}.get(limit, "neither")
    bytes_of = [kv_bytes(given.shape, n_tokens=n) for n in (limit, 1000 * k)]
    facts = {
        "k": Quantity(k, ""),
        "limit": Quantity(limit, "tokens"),
        "fewer": Quantity(limit - 1000 * k, "tokens"),
        "bytes": Quantity(bytes_of[0] - bytes_of[1], "B"),
    }
    return Outcome(answer=answer, facts=facts)


def quantised_cache(given: Given) -> Outcome:
    """Whether a cache in a block format takes as little as its bits alone would, more, or less."""
    stored = kv_dtypes(given.kv_dtype)
    plain, packed = (kv_bytes(given.shape, n_tokens=given.n, dtypes=dtypes) for dtypes in (BF16_KV, stored))
    bits = stored.k.without_scales.bytes_per_number / BF16_KV.k.bytes_per_number
    share = packed / plain
    facts = {
        "share": Quantity(100 * share, "percent"),
        "bits_share": Quantity(100 * bits, "percent"),
        "packed": Quantity(packed, "B"),
        "plain": Quantity(plain, "B"),
    }
    return Outcome(answer="exactly" if share == bits else "more" if share > bits else "less", facts=facts)


def windowed_cache(given: Given) -> Outcome:
    """KV bytes of a model with windows, against those of the same model had every layer kept everything."""
    right = kv_bytes(given.shape, n_tokens=given.n)
    believed = mistaken(given.shape, "window_forgotten", given.n)
    windows = {group.attention.window for group in given.shape.groups if group.attention is not None}
    window = max(window for window in windows if window is not None)
    facts = {
        "right": Quantity(right, "B"),
        "wrong": Quantity(believed, "B"),
        "window": Quantity(window, "tokens"),
        "times": Quantity(believed / right, "times"),
    }
    return Outcome(answer=float(right), believed=believed, facts=facts)


def cache_on_a_rank(given: Given) -> Outcome:
    """The share of one request's cache that lies on the fullest of `ranks` devices, against an even split.

    With as many heads as devices or more, every head lies on one device; with fewer, each device holds a copy of one.
    """
    whole, own = (kv_bytes(given.shape, n_tokens=given.n, ranks=ranks) for ranks in (1, given.ranks))
    heads = max(getattr(group.attention, "n_kv_heads", 1) for group in given.shape.groups)
    is_copied = given.ranks > heads
    facts = {
        "own": Quantity(own, "B"),
        "whole": Quantity(whole, "B"),
        "heads": Quantity(heads, ""),
        "most": Quantity(-(-heads // given.ranks), ""),
        "copies": Quantity(given.ranks * own / whole if is_copied else 1.0, "times"),
    }
    case = "" if is_copied else "even" if heads % given.ranks == 0 else "uneven"
    return Outcome(answer=100 * own / whole, believed=100 / given.ranks, facts=facts, case=case)


def cache_equals_weights(given: Given) -> Outcome:
    """The context from which on the batch's cache takes as many bytes as the weights; infinite where it never does."""
    weights = weight_bytes(given.shape, BF16_WEIGHTS)
    found = first_context(given.shape, Request(batch=given.batch), weights)
    facts = {
        "weights": Quantity(weights, "B"),
        "token": Quantity(kv_bytes(given.shape, n_tokens=1, batch=given.batch), "B"),
        "limit": Quantity(given.shape.context_limit, "tokens"),
    }
    return Outcome(answer=float("inf") if found is None else float(found), facts=facts)
