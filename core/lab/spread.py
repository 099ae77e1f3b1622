"""Repeats of one measurement: their middle, and where the middle half of them lies."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple


class Spread(NamedTuple):
    """Seconds; of a single repeat all three are that one."""

    median_s: float
    first_quartile_s: float
    third_quartile_s: float


def spread(seconds: Sequence[float]) -> Spread:
    """Of one repeat or more. Raises statistics.StatisticsError for none."""
    low, _, high = quantiles(seconds, method="inclusive") if len(seconds) > 1 else (median(seconds),) * 3
    return Spread(median(seconds), low, high)
