"""`python -m core sweep`: decode steps over contexts and batches on this machine, row by row into a CSV file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core.lab.sweep.plan import Spot, SweepPlan, SweepRow, cells
from core.refusal import Refusal

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.fit import Fit
    from core.model.load import LanguageModel

MOST_SECONDS = 6 * 3600.0
LONGEST_NAME = 80
"""Characters of a file's name in a refusal."""


def sweep_command(arguments: argparse.Namespace) -> int:
    """Measures a server, or this machine. Returns the exit status; raises Refusal with the reason."""
    if arguments.endpoint:
        from core.cli.sweep_endpoint import sweep_endpoint

        return sweep_endpoint(arguments)
    sweep_here(arguments)
    return 0


def sweep_here(arguments: argparse.Namespace) -> None:
    """Checks, measures, prints medians and fits. Raises Refusal with the reason."""
    if not arguments.model:
        raise Refusal("sweep.no_model")
    plan = SweepPlan(
        contexts=arguments.contexts, batches=arguments.batches, repeats=arguments.repeats, fill=arguments.fill
    )
    path = Path(arguments.csv)
    check_place(path)
    # Only now: what was asked for can be written down, and torch takes seconds to import.
    from core.lab.sweep.forecast import check_room
    from core.lab.sweep.head import head_of
    from core.lab.sweep.table import SweepFile
    from core.model.load import load_model

    model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
    check_room(model, plan, budget_bytes(model))  # before there is a file
    with SweepFile(path, head_of(model, plan)) as file:
        try:
            measure(model, plan, {row.spot for row in file.rows}, file.add)
        except KeyboardInterrupt:
            kept = f"{len(file.rows):,} rows are kept in {path.name}; the same command goes on from there."
            print(f"python -m core sweep: stopped. {kept}", file=sys.stderr)
            raise
        wanted = set(plan.spots())
        print(summary(model, [row for row in file.rows if row.spot in wanted]))


def check_place(path: Path) -> None:
    """Raises Refusal where the file cannot lie."""
    try:
        is_there = path.exists()
        # A pipe would be waited for without an end, and a device holds no file that could be gone on with.
        can_be = path.is_file() if is_there else bool(path.name) and path.parent.is_dir()
    except OSError:  # a name that is too long, say
        is_there = can_be = False
    if not can_be or not os.access(path if is_there else path.parent, os.W_OK):
        raise Refusal("sweep.no_place", file=path.name[:LONGEST_NAME] or ".")


def budget_bytes(model: LanguageModel) -> int:
    """What the caches may take."""
    from core.engine.limits import kv_budget_bytes

    return kv_budget_bytes(model.device.free_memory_bytes())


def measure(model: LanguageModel, plan: SweepPlan, measured: set[Spot], add: Callable[[SweepRow], None]) -> None:
    """Every spot that was not measured yet; says on stderr how far it is.

    Raises Refusal for what would take too much, and KeyboardInterrupt, behind the point under way, when asked to stop.
    """
    from core.engine.exclusive import ExclusiveSlot
    from core.engine.residents import Residents
    from core.lab.sweep.forecast import check_time, foreseen_seconds, probe
    from core.lab.sweep.sweep import N_STEPS, Sweep

    budget = budget_bytes(model)
    sweep = Sweep(model, plan, budget, measured)
    if not sweep.n_spots:
        return
    n_all = len(list(plan.spots()))
    seconds = foreseen_seconds(model, plan, N_STEPS, probe(model), n_all - sweep.n_spots)
    check_time(seconds, MOST_SECONDS)
    print(f"{sweep.n_spots:,} of {n_all:,} points to measure, about {seconds:,.0f} s", file=sys.stderr)

    def on_row(row: SweepRow) -> None:
        add(row)
        print(progress(row, len(sweep.rows), sweep.n_spots), file=sys.stderr, flush=True)

    measurement, slot = sweep.measurement(on_row), ExclusiveSlot(Residents(lambda: budget))
    slot.add(measurement)
    with cancelled_by_interrupt(measurement):
        while slot:
            slot.step(others_wait=False)
    measurement.future.result()
    if measurement.is_cancelled:
        raise KeyboardInterrupt


@contextmanager
def cancelled_by_interrupt(measurement: Measurement) -> Iterator[None]:
    """Within it, Ctrl-C ends the measurement behind the point under way; the next one is Python's own."""

    def cancel(*_: object) -> None:
        measurement.cancel()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def progress(row: SweepRow, n_done: int, n_spots: int) -> str:
    """One row for whoever waits."""
    disturbed = "  disturbed by other programs" if row.disturbed else ""
    place = f"n={row.context:<6} B={row.batch:<4} repeat {row.repeat + 1:<3}"
    return f"{n_done:>5}/{n_spots}  {place} {row.decode_step_s * 1e3:9.2f} ms  gap {row.kv_gap_bytes:,} B{disturbed}"


def summary(model: LanguageModel, rows: list[SweepRow]) -> str:
    """Medians with quartiles for a reader, then what the latency follows."""
    lines = [f"{model.name}, {model.dtype_name}, {model.device.torch_device}"]
    lines.append(f"{'n':>7} {'B':>5} {'KV, B':>15} {'gap':>5} {'median, ms':>11} {'quartiles, ms':>19} {'GB/s':>7}")
    found = cells(rows)
    for cell in found:
        quartiles = f"{cell.first_quartile_s * 1e3:.2f} … {cell.third_quartile_s * 1e3:.2f}"
        rate = cell.row.bytes_read / cell.median_s / 1e9
        place = f"{cell.context:>7,} {cell.batch:>5,} {cell.row.kv_bytes_measured:>15,} {cell.kv_gap_bytes:>5,}"
        lines.append(f"{place} {cell.median_s * 1e3:>11.2f} {quartiles:>19} {rate:>7.2f}")
    return "\n".join([*lines, "", *fits(model, rows)])


def fits(model: LanguageModel, rows: list[SweepRow]) -> list[str]:
    """The law for each batch and for all points, as far as there are points enough."""
    from core.estimate.kv import kv_bytes_per_token
    from core.lab.fit import Observed, fit_context, fit_together, held_out

    position_bytes = kv_bytes_per_token(model.shape, model.kv_dtypes)
    middles = [Observed(cell.context, cell.batch, cell.median_s) for cell in cells(rows)]
    lines = []
    for batch in sorted({point.batch for point in middles}):
        of_batch = [point for point in middles if point.batch == batch]
        if len(of_batch) > 1:
            lines.append(f"B={batch:<4} {law(fit_context(of_batch), position_bytes, batch)}")
    try:
        lines.append(f"all    {law(fit_together(middles), position_bytes, 1)}")
        tested = held_out(middles)
    except ValueError:
        return lines  # one context or one batch, or too few of them to hold some out
    n_used = len(middles) - len(tested.points)
    off = f"the other {len(tested.points)} are off by {tested.median_error:.1%} (median)"
    lines.append(f"fitted on {n_used} points, {off}")
    return lines


def law(fit: Fit, position_bytes: int | None, batch: int) -> str:
    """A fit in milliseconds, and the bandwidth that its slope implies."""
    terms = [
        f"{coefficient * 1e3:+.6g}{'' if term == '1' else f'·{term}'}"
        for term, coefficient in zip(fit.terms, fit.coefficients, strict=True)
    ]
    bandwidth = None if position_bytes is None else fit.implied_bandwidth(position_bytes, batch)
    implied = "" if bandwidth is None else f", KV at {bandwidth / 1e9:.2f} GB/s"
    return f"ms = {' '.join(terms).removeprefix('+')}  R² {fit.r_squared:.4f}{implied}"
