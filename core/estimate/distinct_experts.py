"""How many different experts a batch meets: the spread around the expectation, and what uneven routing lets expect.

An expert is met or not: the number of different ones is a sum of E indicators. When every token chooses k of E at
random and tokens choose alone, n tokens all miss one given expert with probability (1 − k/E)^n and two given ones with
((E − k)(E − k − 1) / (E(E − 1)))^n; variances and covariances of the indicators follow, and add up. (The classical
occupancy problem, with k balls thrown into different boxes at a time.) The expectation itself is
`core.estimate.weights.expected_distinct_experts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from core.estimate.shape import Experts
from core.estimate.weights import expected_distinct_experts


class Interval(NamedTuple):
    """Both ends are inside."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in it; the last digits of a sum count for nothing."""
        slack = 1e-9 * max(1.0, abs(value))
        return self.low - slack <= value <= self.high + slack


def distinct_experts_variance(experts: Experts, n_positions: int) -> float:
    """Variance of the number of different experts that `n_positions` tokens choose under uniform routing."""
    E, k, n = experts.n_experts, experts.n_active, n_positions
    if k == E:
        return 0.0
    one_missed = (1 - k / E) ** n
    two_missed = ((E - k) * (E - k - 1) / (E * (E - 1))) ** n
    return max(0.0, E * one_missed + E * (E - 1) * two_missed - (E * one_missed) ** 2)


def distinct_experts_interval(experts: Experts, n_positions: int, n_batches: int, level: float = 0.99) -> Interval:
    """Where the mean over `n_batches` batches lies with probability `level`, under uniform routing.

    By the central limit theorem: mean ± z·√(variance ÷ batches).
    """
    mean = float(expected_distinct_experts(experts, n_positions))
    z = NormalDist().inv_cdf((1 + level) / 2)
    half = z * math.sqrt(distinct_experts_variance(experts, n_positions) / n_batches)
    return Interval(mean - half, mean + half)


def distinct_experts_of_shares(shares: Sequence[float], n_positions: int) -> float:
    """Expected different experts when expert e is chosen by a token with probability `shares[e]`: Σ_e 1 − (1 − p_e)^n.

    Shares add up to k. 1 − (1 − p)^n is concave in p, so for a given k the sum is largest where all shares are equal
    (Jensen): uniform routing is the maximum.
    """
    return sum(1 - (1 - share) ** n_positions for share in shares)
