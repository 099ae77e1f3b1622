"""What is looked at: a sweep of this visitor's, or another machine's out of a file, as one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from core.lab.sweep.plan import SweepRow
from core.lab.sweep.report import Findings, SweepReport, findings
from pages.shared.lab.kept import KeptSweep, kept_date
from pages.shared.lab.machine import this_machine_bandwidth
from pages.shared.lab.notes import plan_of, predictions_of


@dataclass(frozen=True)
class Shown:
    """A sweep with all that follows from it. `sweep` is None for an opened file."""

    report: SweepReport
    sweep: KeptSweep | None
    origin: str = ""

    @cached_property
    def found(self) -> Findings:
        """What its rows say."""
        return findings(self.report)

    @property
    def title(self) -> str:
        """What it is called among the others."""
        head = self.report.machine
        parts = (self.origin, self.report.model, head.get("dtype", ""), kept_date(head))
        return " · ".join(part for part in parts if part)

    @property
    def batches(self) -> list[int]:
        """Those that were measured."""
        return sorted({cell.batch for cell in self.found.cells})


def shown_sweep(sweep: KeptSweep) -> Shown:
    """One that is kept here."""
    report = SweepReport(
        model=sweep.head.get("model", ""),
        machine=sweep.head,
        plan=sweep.plan,
        rows=tuple(sweep.rows),
        predictions=sweep.predictions,
        roof_bytes_per_s=this_machine_bandwidth(),
    )
    return Shown(report, sweep)


def shown_file(head: Mapping[str, str], rows: list[SweepRow], name: str) -> Shown:
    """One out of a file; that machine's roof is not known here. Raises Refusal for a file without rows."""
    plan = plan_of(head, rows)
    report = SweepReport(
        model=head.get("model", ""), machine=head, plan=plan, rows=tuple(rows), predictions=predictions_of(head)
    )
    return Shown(report, None, name)
