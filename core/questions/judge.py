"""How near a prediction came. Numbers are judged by their ratio: twice too much is as far off as half.

A reader who thinks in powers of ten is near with a factor of two; a difference in percent would punish those who guess
high and spare those who guess low.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import exp, inf, log

from core.questions.question import Amount, Answer, Choice, Curve, Prediction, Table

CLOSE_FACTOR, NEAR_FACTOR = 1.25, 2.0
ROUNDING = 1e-9
"""A ratio of exactly 1.25 is close, whatever its last binary digit says."""


class Verdict(StrEnum):
    """How near it came; a choice is close or far, a table is near when half its rows are right."""

    CLOSE = "close"
    NEAR = "near"
    FAR = "far"


def factor(said: float, right: float) -> float:
    """How many times off, from 1 up; infinite where only one of the two is zero, or their signs differ."""
    if said == right:
        return 1.0
    if said * right <= 0:
        return inf
    return max(said / right, right / said)


def mean_factor(said: Sequence[float], right: Sequence[float]) -> float:
    """The geometric mean of the factors: exp of the mean distance on a log scale."""
    factors = [factor(*pair) for pair in zip(said, right, strict=True)]
    return inf if inf in factors else exp(sum(map(log, factors)) / len(factors))


def judge(prediction: Prediction, said: Answer, right: Answer) -> Verdict:
    """How near `said` came to `right`. Raises ValueError where they are not of the prediction's kind."""
    match prediction, said, right:
        case Choice(), str(), str():
            return Verdict.CLOSE if said == right else Verdict.FAR
        case Table(), tuple(), tuple():
            n_right = sum(one == other for one, other in zip(said, right, strict=True))
            return _within(n_right == len(right), 2 * n_right >= len(right))
        case Amount(), float(), float():
            return _by(factor(said, right))
        case Curve(), tuple(), tuple():
            return _by(mean_factor([float(height) for height in said], [float(height) for height in right]))
    raise ValueError(f"{said!r} and {right!r} are no answers to {prediction!r}")


def _by(off: float) -> Verdict:
    return _within(off <= CLOSE_FACTOR + ROUNDING, off <= NEAR_FACTOR + ROUNDING)


def _within(is_close: bool, is_near: bool) -> Verdict:
    return Verdict.CLOSE if is_close else Verdict.NEAR if is_near else Verdict.FAR
