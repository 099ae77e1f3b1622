"""Least squares of a step's latency: a + b·n for one batch, and a + b·n + c·B + e·B·n for all points together.

What the coefficients stand for: a the step's overhead and the reading of weights, e (b for one batch) what one cached
position more of one sequence costs, so that a position's bytes over it is a bandwidth; c one sequence more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TERMS = {"1": "a", "n": "b", "B": "c", "B·n": "e"}


class Observed(NamedTuple):
    """One step's seconds at a context and a batch."""

    context: int
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A law and how well it holds.

    Attributes:
        terms: what each coefficient multiplies, of TERMS.
        coefficients: in seconds, in the order of the terms.
        r_squared: 1 − residual over total sum of squares; 1 too where all seconds are the same and met.
        residuals: observed less predicted seconds, in the order of the points.
    """

    terms: tuple[str, ...]
    coefficients: tuple[float, ...]
    r_squared: float
    residuals: tuple[float, ...]

    def coefficient(self, term: str) -> float:
        """Seconds for one of a term; 0 for one it does not have."""
        return dict(zip(self.terms, self.coefficients, strict=True)).get(term, 0.0)

    def predict(self, context: int, batch: int) -> float:
        """Seconds of a step."""
        row = _columns([Observed(context, batch, 0.0)], self.terms)
        return float((row @ np.array(self.coefficients))[0])

    def seconds_per_position(self, batch: int) -> float:
        """What one context position more costs a step of this batch."""
        return self.coefficient("n") + self.coefficient("B·n") * batch

    def implied_bandwidth(self, kv_bytes_per_token: int, batch: int) -> float | None:
        """Bytes a second at which caches are read, were reading all that more positions cost: B positions' bytes over
        the slope. None where the slope is not positive."""
        slope = self.seconds_per_position(batch)
        return batch * kv_bytes_per_token / slope if slope > 0 else None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A fit on some of the points and its errors on the others: |predicted − observed| ÷ observed, point by point."""

    fit: Fit
    points: tuple[Observed, ...]
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float:
        """Of the held-out points."""
        return float(np.median(self.errors))


def fit_context(points: Sequence[Observed]) -> Fit:
    """a + b·n, for points of one batch. Raises ValueError for fewer than two contexts, or more than one batch."""
    if len({point.batch for point in points}) != 1:
        raise ValueError("the points are not of one batch")
    return _fit(points, ("1", "n"))


def fit_together(points: Sequence[Observed]) -> Fit:
    """a + b·n + c·B + e·B·n. Raises ValueError where the points cannot tell four coefficients apart."""
    return _fit(points, ("1", "n", "B", "B·n"))


def held_out(points: Sequence[Observed], share: float = 0.3, seed: int = 0) -> HeldOut:
    """`fit_together` on all but a random `share` of the points, which it then predicts.

    Raises ValueError where the rest cannot tell the coefficients apart.
    """
    order = np.random.default_rng(seed).permutation(len(points))
    n_out = max(1, round(share * len(points)))
    out = [points[index] for index in sorted(order[:n_out])]
    fit = fit_together([points[index] for index in sorted(order[n_out:])])
    errors = [abs(fit.predict(one.context, one.batch) - one.seconds) / one.seconds for one in out]
    return HeldOut(fit, tuple(out), tuple(errors))


def fit_together_or_none(points: Sequence[Observed]) -> Fit | None:
    """`fit_together`; None for one context or one batch, or too few of them."""
    try:
        return fit_together(points)
    except ValueError:
        return None


def held_out_or_none(points: Sequence[Observed]) -> HeldOut | None:
    """`held_out`; None where there are too few points to hold some out."""
    try:
        return held_out(points)
    except ValueError:
        return None


def _columns(points: Sequence[Observed], terms: Sequence[str]) -> np.ndarray:
    """The design matrix [points, terms]."""
    n = np.array([point.context for point in points], dtype=float)
    B = np.array([point.batch for point in points], dtype=float)
    columns = {"1": np.ones_like(n), "n": n, "B": B, "B·n": B * n}
    return np.stack([columns[term] for term in terms], axis=1)


def _fit(points: Sequence[Observed], terms: tuple[str, ...]) -> Fit:
    columns, seconds = _columns(points, terms), np.array([point.seconds for point in points])
    sizes = np.abs(columns).max(axis=0)  # so that a column of thousands does not drown one of ones
    solved, _, rank, _ = np.linalg.lstsq(columns / sizes, seconds, rcond=None)
    if rank < len(terms):
        raise ValueError("too few different points for so many coefficients")
    coefficients = solved / sizes
    residuals = seconds - columns @ coefficients
    total, left = float(((seconds - seconds.mean()) ** 2).sum()), float((residuals**2).sum())
    return Fit(
        terms=terms,
        coefficients=tuple(map(float, coefficients)),
        r_squared=1 - left / total if total > 0 else 1.0,
        residuals=tuple(map(float, residuals)),
    )
