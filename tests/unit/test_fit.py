"""Least squares of latency: known coefficients come back, residuals and R² are what they are called."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from core.lab.fit import Observed, fit_context, fit_together, held_out

CONTEXTS, BATCHES = (128, 256, 512, 1024, 2048, 4096), (1, 2, 4, 8)
seconds = some.floats(1e-6, 1e-1)
slopes = some.floats(1e-9, 1e-4)


def law(a: float, b: float, c: float, e: float, noise: float = 0.0, seed: int = 0) -> list[Observed]:
    """Points of a + b·n + c·B + e·B·n, each off by a random share of about `noise`."""
    random = np.random.default_rng(seed)
    return [
        Observed(n, B, (a + b * n + c * B + e * B * n) * (1 + noise * random.standard_normal()))
        for n in CONTEXTS
        for B in BATCHES
    ]


@settings(deadline=None)
@given(a=seconds, b=slopes, c=seconds, e=slopes)
def test_the_joint_law_comes_back(a: float, b: float, c: float, e: float) -> None:
    points = law(a, b, c, e)
    fit = fit_together(points)
    most = max(point.seconds for point in points)
    for point, residual in zip(points, fit.residuals, strict=True):
        assert fit.predict(point.context, point.batch) == pytest.approx(point.seconds, rel=1e-6)
        assert abs(residual) < 1e-9 * most
    for found, real, largest in zip(fit.coefficients, (a, b, c, e), (1, 4096, 8, 8 * 4096), strict=True):
        assert abs(found - real) * largest < 1e-8 * most
    assert fit.r_squared == pytest.approx(1)


@settings(deadline=None)
@given(a=seconds, b=slopes, B=some.integers(1, 64))
def test_the_law_of_one_batch_comes_back(a: float, b: float, B: int) -> None:
    fit = fit_context([Observed(n, B, a + b * n) for n in CONTEXTS])
    assert fit.terms == ("1", "n") and fit.coefficient("B·n") == 0
    assert fit.coefficients == pytest.approx((a, b), rel=1e-5, abs=1e-12)
    assert fit.seconds_per_position(B) == pytest.approx(b, rel=1e-5)


def test_noise_is_found_as_noise() -> None:
    points = law(0.01, 2e-6, 0.002, 1e-6, noise=0.05)
    fit = fit_together(points)
    assert 0.9 < fit.r_squared < 1
    squares = sum(residual**2 for residual in fit.residuals)
    mean = sum(point.seconds for point in points) / len(points)
    total = sum((point.seconds - mean) ** 2 for point in points)
    assert fit.r_squared == pytest.approx(1 - squares / total)
    assert sum(fit.residuals) == pytest.approx(0, abs=1e-9)  # least squares with a constant
    tested = held_out(points)
    assert len(tested.points) == round(0.3 * len(points)) == len(tested.errors)
    assert 0 < tested.median_error < 0.15
    assert not set(tested.points) & set(points) - set(tested.points)


def test_held_out_points_were_not_fitted() -> None:
    """One that lies far off changes its own error and no coefficient."""
    points = law(0.01, 2e-6, 0.002, 1e-6)
    tested = held_out(points)
    assert tested.median_error < 1e-9
    far = tested.points[0]
    moved = [point._replace(seconds=9 * point.seconds) if point == far else point for point in points]
    again = held_out(moved)
    assert again.fit.coefficients == pytest.approx(tested.fit.coefficients)
    assert max(again.errors) == pytest.approx(8 / 9)


def test_the_implied_bandwidth() -> None:
    """10 GB/s of caches with 20 kB a position: 2 µs a position and sequence."""
    fit = fit_together(law(0.01, 0.0, 0.001, 2e-6))
    for batch in (1, 8):
        assert fit.implied_bandwidth(20_000, batch) == pytest.approx(1e10, rel=1e-4)
    falling = fit_context([Observed(n, 1, 1 - 1e-5 * n) for n in CONTEXTS])
    assert falling.implied_bandwidth(20_000, 1) is None


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Observed(128, 1, 1.0)],
        [Observed(128, 1, 1.0)] * 5,
        [Observed(n, 1, 1.0) for n in CONTEXTS],
        [Observed(128, B, 1.0) for B in BATCHES],
    ],
)
def test_what_cannot_be_told_apart_is_an_error(points: list[Observed]) -> None:
    with pytest.raises(ValueError):
        fit_together(points)
    if len(set(points)) < 2:
        with pytest.raises(ValueError):
            fit_context(points)


def test_points_of_two_batches_have_no_law_of_one() -> None:
    with pytest.raises(ValueError):
        fit_context([Observed(128, 1, 1.0), Observed(256, 2, 1.0)])
