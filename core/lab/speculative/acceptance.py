"""The rule by which drafted tokens become the model's own, so that the text is distributed as if it had been alone.

Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (arXiv 2211.17192), algorithm 1:
a token drawn from q stays with probability min(1, p/q); the first that does not is replaced by a draw from
max(0, p − q), scaled to sum 1; behind a draft that stayed whole there is one more draw, from p. With p and q of a
single token each (greedy) that is: a token stays when it is the model's own best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.lab.speculative.drafting import Draft
from core.model.sampling import Filtered, Weights, uniform

ACCEPT = ":accept"
"""The purpose of the draws that accept; a draw that replaces takes the one that plain decoding takes there."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of a draft's tokens stay, and the token that the model itself puts behind them."""

    n_accepted: int
    own_id: int


def judge(draft: Draft, target_at: Callable[[int], Filtered], seed: int, n_tokens: int) -> Verdict:
    """Applies the rule to a draft that follows `n_tokens` tokens.

    `target_at(i)` is the model's distribution behind the first i drafted tokens; it is asked for no more than needed.
    Every draw depends on the seed, its position and its purpose alone.
    """
    for place, (token_id, drawn_from) in enumerate(zip(draft.ids, draft.distributions, strict=True)):
        target, n = target_at(place), n_tokens + place
        proposed = 1.0 if drawn_from is None else float(drawn_from[token_id])
        if not is_accepted(uniform(seed, n, ACCEPT), target.probability_kept(token_id), proposed):
            rest = what_is_left(target.distribution, drawn_from, token_id)
            return Verdict(place, _drawn(rest, uniform(seed, n)))
    n_drafted = len(draft.ids)
    return Verdict(n_drafted, target_at(n_drafted).choose(n_tokens + n_drafted))


def is_accepted(u: float, p: float, q: float) -> bool:
    """Whether a token of the target's probability p and the draft's q stays, for u in [0, 1): so with min(1, p/q)."""
    return u * q < p


def what_is_left(target: Weights, drawn_from: Weights | None, token_id: int) -> Weights:
    """max(0, p − q), scaled to sum 1: what a refused token is replaced from, [usable]. A certain draft has q = 1."""
    if drawn_from is None:
        rest = target.copy()
        rest[token_id] = 0.0
    else:
        rest = np.maximum(target - drawn_from, 0.0)
    total = float(rest.sum())
    # p and q that differ by rounding alone refuse once in 10^16 times; there is nothing left then.
    return rest / total if total > 0 else target


def _drawn(distribution: Weights, u: float) -> int:
    reached = np.cumsum(distribution)
    place = int(np.searchsorted(reached, u * reached[-1], side="right"))
    return min(place, int(np.flatnonzero(distribution)[-1]))
