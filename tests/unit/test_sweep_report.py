"""What follows from a sweep's rows: medians, laws, bandwidth, the intercept's share, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from core.lab.fit import Observed, fit_context, fit_together, held_out
from core.lab.sweep.plan import SweepPlan, SweepRow
from core.lab.sweep.report import Prediction, SweepReport, findings, is_tested

POSITION_BYTES, WEIGHT_BYTES = 2_000, 5_000_000
CONTEXTS, BATCHES = (128, 256, 512, 1024), (1, 2, 4)
PLAN = SweepPlan(contexts=CONTEXTS, batches=BATCHES, repeats=3)


def seconds(n: int, B: int) -> float:
    """10 ms of overhead and weights, 1 ms a sequence, and caches read at 1 GB/s."""
    return 0.010 + 0.001 * B + B * n * POSITION_BYTES / 1e9


def row(n: int, B: int, repeat: int = 0, *, gap: int = 0, disturbed: bool | None = False, off: float = 0.0) -> SweepRow:
    kv = POSITION_BYTES * n * B
    return SweepRow(
        context=n,
        batch=B,
        repeat=repeat,
        kv_bytes_formula=kv,
        kv_bytes_measured=kv + gap,
        decode_step_s=seconds(n, B) + off,
        flops_chapter=3_000_000 * B,
        flops_exact=2_900_000 * B,
        bytes_read=WEIGHT_BYTES + kv,
        disturbed=disturbed,
    )


def made(plan: SweepPlan = PLAN, **values: object) -> SweepReport:
    rows = tuple(row(*spot, off=1e-4 * (spot.repeat - 1)) for spot in plan.spots())
    whole = SweepReport(model="m", machine={}, plan=plan, rows=rows)
    return replace(whole, **values)  # type: ignore[arg-type]


def test_a_sweep_by_a_known_law() -> None:
    found = findings(made())
    assert [(cell.context, cell.batch) for cell in found.cells] == [(n, B) for n in CONTEXTS for B in BATCHES]
    for cell in found.cells:
        expected = seconds(cell.context, cell.batch)
        assert (cell.first_quartile_s, cell.median_s, cell.third_quartile_s) == pytest.approx(
            (expected - 5e-5, expected, expected + 5e-5)
        )
        assert found.fitted_s(cell) == pytest.approx(expected)
    assert [law.batch for law in found.laws] == list(BATCHES)
    for law in found.laws:
        assert law.intercept_s == pytest.approx(0.010 + 0.001 * law.batch)
        assert law.implied_bytes_per_s == pytest.approx(1e9, rel=1e-6)
        for cell in law.cells:
            assert law.intercept_share(cell) == pytest.approx(law.intercept_s / seconds(cell.context, law.batch))
        assert is_tested(law.fit) and found.law(law.batch) == law
    assert found.joint is not None and found.joint.coefficients == pytest.approx((0.010, 0.0, 0.001, 2e-6), abs=1e-11)
    assert found.tested is not None and found.tested.median_error < 1e-9
    assert (found.position_bytes, found.weight_bytes) == (POSITION_BYTES, WEIGHT_BYTES)
    assert (found.kv_gap_bytes, found.n_missing, found.n_disturbed) == (0, 0, 0)


def test_laws_are_those_of_the_medians() -> None:
    """The same points go into the fits that the command prints."""
    rows = tuple(row(*spot, off=1e-3 * ((7 * i) % 5)) for i, spot in enumerate(PLAN.spots()))
    found = findings(made(rows=rows))
    points = [
        Observed(n, B, median(one.decode_step_s for one in rows if (one.context, one.batch) == (n, B)))
        for n in CONTEXTS
        for B in BATCHES
    ]
    assert found.joint == fit_together(points) and found.joint.r_squared < 1
    assert found.tested == held_out(points)
    assert [law.fit for law in found.laws] == [fit_context([p for p in points if p.batch == B]) for B in BATCHES]


def test_predictions_stand_beside_what_was_measured() -> None:
    right, low, nowhere = (
        Prediction(1, 128, seconds(128, 1)),
        Prediction(4, 1024, 0.5 * seconds(1024, 4)),
        Prediction(9, 9, 1),
    )
    found = findings(made(predictions=(right, low, nowhere)))
    assert [one.prediction for one in found.checked] == [right, low, nowhere]
    assert found.checked[0].error == pytest.approx(0) and found.checked[1].error == pytest.approx(-0.5)
    assert found.checked[2].error is None and found.checked[2].measured_s is None
    assert found.median_prediction_error == pytest.approx(0.25)
    assert findings(made()).median_prediction_error is None


def test_nothing_and_little() -> None:
    nothing = findings(made(rows=()))
    assert nothing.cells == nothing.laws == () and nothing.joint is nothing.tested is nothing.position_bytes is None
    assert nothing.n_missing == 36 and nothing.n_disturbed is None and nothing.kv_gap_bytes == 0
    one = findings(made(rows=(row(128, 1),)))
    assert len(one.cells) == 1 and one.laws == () and one.fitted_s(one.cells[0]) is None
    assert one.position_bytes == POSITION_BYTES and one.n_missing == 35


def test_one_batch_has_its_own_law_alone() -> None:
    plan = SweepPlan(contexts=CONTEXTS, batches=(2,), repeats=1)
    found = findings(made(plan, rows=tuple(row(*spot) for spot in plan.spots())))
    assert found.joint is None and found.tested is None and len(found.laws) == 1
    assert found.drawn(2) == found.laws[0].fit and found.drawn(1) is None
    assert found.fitted_s(found.cells[-1]) == pytest.approx(seconds(1024, 2))


def test_a_line_through_two_points_is_not_tested() -> None:
    (law,) = findings(made(rows=(row(128, 1), row(256, 1)))).laws
    assert not is_tested(law.fit)


def test_gaps_disturbances_and_what_is_missing_are_counted() -> None:
    rows = (row(128, 1, gap=3), row(256, 1, 0, gap=-64, disturbed=True), row(256, 1, 1, disturbed=None))
    found = findings(made(rows=rows))
    assert found.kv_gap_bytes == -64 and found.n_disturbed == 1 and found.n_missing == 33
    assert findings(made(rows=(row(128, 1, disturbed=None),))).n_disturbed is None


def test_bytes_that_depend_on_n_are_not_one_number() -> None:
    """As with a sliding window: no bytes a position, and no bandwidth from them."""
    windowed = tuple(replace(one, kv_bytes_formula=100_000) for one in made().rows)
    found = findings(made(rows=windowed))
    assert found.position_bytes is None and all(law.implied_bytes_per_s is None for law in found.laws)


def test_a_falling_line_implies_no_bandwidth() -> None:
    rows = tuple(replace(one, decode_step_s=1 / one.context) for one in made().rows)
    assert all(law.implied_bytes_per_s is None for law in findings(made(rows=rows)).laws)


def test_what_is_missing_is_counted_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of a file of a few hundred bytes can plan four million rows."""
    many = SweepPlan(contexts=tuple(range(2, 66)), batches=tuple(range(1, 65)), repeats=1000)
    monkeypatch.setattr(SweepPlan, "spots", lambda self: pytest.fail("every spot was made"))
    rows = (row(2, 1), row(2, 1), row(65, 64, 999), row(66, 1), row(2, 65), row(2, 1, 1000))
    report = SweepReport(model="m", machine={}, plan=many, rows=rows)
    assert findings(report).n_missing == 64 * 64 * 1000 - 2
