"""What a lab report holds, and all that follows from its rows. No torch here, and no words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from core.lab.fit import Fit, HeldOut, Observed, fit_context, fit_together_or_none, held_out_or_none
from core.lab.sweep.plan import Cell, SweepPlan, SweepRow, cells


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a learner thought, before it was measured, that a decode step would take. Seconds."""

    batch: int
    context: int
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """A sweep as a learner hands it in.

    Attributes:
        machine: the head of the sweep's file: the model, the machine, the versions, the date.
        rows: as many as were measured; a sweep may have been stopped.
        question, conclusion: the learner's own words; empty where nothing was written.
        roof_bytes_per_s: what this machine's memory was measured to deliver; None where that was not measured.
    """

    model: str
    machine: Mapping[str, str]
    plan: SweepPlan
    rows: tuple[SweepRow, ...]
    predictions: tuple[Prediction, ...] = ()
    question: str = ""
    conclusion: str = ""
    roof_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A prediction beside the median that was measured at its place; None where nothing was."""

    prediction: Prediction
    measured_s: float | None

    @property
    def error(self) -> float | None:
        """(Predicted − measured) ÷ measured; below 0 where the prediction was too low."""
        return None if self.measured_s is None else self.prediction.step_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class BatchLaw:
    """a + b·n of one batch, and what it says.

    Attributes:
        cells: the batch's, n rising; two at least.
        implied_bytes_per_s: at which caches are read, were the slope nothing but reading; None where it is not
            positive, or where a position's bytes depend on n.
    """

    batch: int
    fit: Fit
    cells: tuple[Cell, ...]
    implied_bytes_per_s: float | None

    @property
    def intercept_s(self) -> float:
        """Seconds of a step that do not grow with n: overhead, and the reading of weights."""
        return self.fit.coefficient("1")

    def intercept_share(self, cell: Cell) -> float:
        """Of the step that was measured in one of its cells; below 0 where the intercept is."""
        return self.intercept_s / cell.median_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the rows say, as far as there are enough of them.

    Attributes:
        cells: medians and quartiles, context and batch rising.
        laws: one for every batch with two contexts or more, batch rising.
        joint: a + b·n + c·B + e·B·n; None where the points cannot tell its coefficients apart.
        tested: the same law fitted on a part of the points, with its errors on the others.
        position_bytes: keys and values of one position of one sequence; None where that depends on n.
        weight_bytes: what every step reads beside the caches; None where it depends on the batch.
        n_missing: planned rows that are not there.
        n_disturbed: rows that other programs disturbed; None where the system does not say for any of them.
    """

    cells: tuple[Cell, ...]
    laws: tuple[BatchLaw, ...] = ()
    joint: Fit | None = None
    tested: HeldOut | None = None
    position_bytes: int | None = None
    weight_bytes: int | None = None
    n_missing: int = 0
    n_disturbed: int | None = None
    checked: tuple[Checked, ...] = ()

    @property
    def kv_gap_bytes(self) -> int:
        """Tensors less formula: the gap that is farthest from 0."""
        return max((cell.kv_gap_bytes for cell in self.cells), key=abs, default=0)

    @property
    def median_prediction_error(self) -> float | None:
        """Of |error| over the predictions that were measured."""
        errors = [abs(one.error) for one in self.checked if one.error is not None]
        return median(errors) if errors else None

    def law(self, batch: int) -> BatchLaw | None:
        """Of one batch."""
        return next((law for law in self.laws if law.batch == batch), None)

    def drawn(self, batch: int) -> Fit | None:
        """The law that a batch is compared with: the joint one, else the batch's own."""
        own = self.law(batch)
        return self.joint or (own.fit if own else None)

    def fitted_s(self, cell: Cell) -> float | None:
        """Seconds that the law gives for a cell."""
        fit = self.drawn(cell.batch)
        return None if fit is None else fit.predict(cell.context, cell.batch)

    def cell(self, context: int, batch: int) -> Cell | None:
        """At one place; None where nothing was measured."""
        return next((cell for cell in self.cells if (cell.context, cell.batch) == (context, batch)), None)


def findings(report: SweepReport) -> Findings:
    """All of it, from the rows alone."""
    found = tuple(cells(list(report.rows)))
    points = [Observed(cell.context, cell.batch, cell.median_s) for cell in found]
    position_bytes = _the_one({row.kv_bytes_formula / (row.context * row.batch) for row in report.rows})
    whole = None if position_bytes is None else round(position_bytes)
    weights = _the_one({float(row.bytes_read - row.kv_bytes_formula) for row in report.rows})
    middles = {(cell.context, cell.batch): cell.median_s for cell in found}
    told = [row.disturbed for row in report.rows if row.disturbed is not None]
    return Findings(
        cells=found,
        laws=tuple(_laws(found, whole)),
        joint=fit_together_or_none(points),
        tested=held_out_or_none(points),
        position_bytes=whole,
        weight_bytes=None if weights is None else round(weights),
        n_missing=report.plan.n_missing({row.spot for row in report.rows}),
        n_disturbed=sum(told) if told else None,
        checked=tuple(Checked(one, middles.get((one.context, one.batch))) for one in report.predictions),
    )


def is_tested(fit: Fit) -> bool:
    """Whether a fit has more points than coefficients: a line through two points says nothing by meeting them."""
    return len(fit.residuals) > len(fit.terms)


def _laws(found: tuple[Cell, ...], position_bytes: int | None) -> list[BatchLaw]:
    laws = []
    for batch in sorted({cell.batch for cell in found}):
        own = tuple(cell for cell in found if cell.batch == batch)
        if len(own) > 1:
            fit = fit_context([Observed(cell.context, cell.batch, cell.median_s) for cell in own])
            implied = None if position_bytes is None else fit.implied_bandwidth(position_bytes, batch)
            laws.append(BatchLaw(batch, fit, own, implied))
    return laws


def _the_one(values: set[float]) -> float | None:
    """What all have in common, if they have."""
    return next(iter(values)) if len(values) == 1 else None
