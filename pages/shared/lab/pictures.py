"""The lab's charts on the page: records in, figures out, drawn in place while points come in."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.lab.sweep.plan import Cell
from pages.shared.bundle import plotly_js
from pages.shared.component import component
from pages.shared.figures.chart import Figure
from pages.shared.figures.lab import Line, kv_figure, latency_figure, residual_figure
from pages.shared.lab.laws import gigabytes
from pages.shared.lab.shown import Shown
from pages.shared.lab.versus import name_of
from pages.shared.language import language, t
from pages.shared.numbers import count
from pages.shared.units import units

CURVES = ("fit", "bytes", "flops")


def show_latency(shown: Shown, others: Sequence[Shown], curves: Collection[str], batches: Collection[int]) -> None:
    """Steps against n, batch by batch, with the curves that are asked for and what was predicted."""
    lines = [_line(shown, batch, curves, others) for batch in shown.batches if batch in batches]
    for other in others:
        lines += [_line(other, batch, (), others, other is not shown) for batch in other.batches if batch in batches]
    predicted = [
        (float(one.prediction.context), one.prediction.step_s)
        for one in shown.found.checked
        if one.prediction.batch in batches
    ]
    words = {"x": t("lab.axis_n"), "y": t("lab.axis_step"), "predicted": t("lab.predicted_points")}
    words |= {name: curve_name(shown, name) for name in CURVES}
    _draw("lab_latency", latency_figure(lines, predicted, words), t("lab.alt_latency", points=len(shown.found.cells)))


def show_residuals(shown: Shown) -> None:
    """What the law leaves over."""
    groups = []
    for batch in shown.batches:
        of_batch = [cell for cell in shown.found.cells if cell.batch == batch]
        fitted = [(cell, shown.found.fitted_s(cell)) for cell in of_batch]
        points = [(cell.context, cell.median_s - value) for cell, value in fitted if value is not None]
        groups.append((f"B={count(batch)}", points))
    words = {"x": t("lab.axis_n"), "y": t("lab.axis_residual")}
    _draw("lab_residuals", residual_figure(groups, words), t("lab.alt_residuals"))


def show_kv(shown: Shown) -> None:
    """M_KV: the formula's line through the tensors' bytes."""
    unit_bytes, unit = _bytes_unit(max(cell.row.kv_bytes_formula for cell in shown.found.cells))
    lines = [_line(shown, batch, (), ()) for batch in shown.batches]
    words = {
        "x": t("lab.axis_n"),
        "y": t("lab.axis_kv", unit=unit),
        "formula": t("lab.kv_formula"),
        "tensors": t("lab.kv_tensors"),
    }
    _draw("lab_kv", kv_figure(lines, words, unit_bytes), t("lab.alt_kv"))


def curve_name(shown: Shown, curve: str) -> str:
    """What a curve is called, with the rate that it is reckoned by."""
    if curve == "fit":
        return t("lab.curve_fit")
    if curve == "flops":
        best = max(cell.row.flops_exact / cell.median_s for cell in shown.found.cells)
        return t("lab.curve_flops", rate=f"{best / 1e9:,.1f}")
    roof = shown.report.roof_bytes_per_s
    return t("lab.curve_bytes_roof" if roof else "lab.curve_bytes", rate=gigabytes(_byte_rate(shown)))


def _line(shown: Shown, batch: int, curves: Collection[str], others: Sequence[Shown], is_other: bool = False) -> Line:
    of_batch = [cell for cell in shown.found.cells if cell.batch == batch]
    named = f"B={count(batch)}"
    if others:
        named = f"{name_of(shown)} · {named}".translate({ord(sign): None for sign in "<>&"})  # plotly reads markup
    drawn = {name: points for name in CURVES if name in curves and (points := _curve(shown, of_batch, name))}
    return Line(named, of_batch, drawn, is_other)


def _curve(shown: Shown, of_batch: Sequence[Cell], name: str) -> list[float]:
    if name == "fit":
        fitted = [shown.found.fitted_s(cell) for cell in of_batch]
        return [value for value in fitted if value is not None]
    if name == "bytes":
        return [cell.row.bytes_read / _byte_rate(shown) for cell in of_batch]
    best = max(cell.row.flops_exact / cell.median_s for cell in shown.found.cells)
    return [cell.row.flops_exact / best for cell in of_batch]


def _byte_rate(shown: Shown) -> float:
    """The measured roof, else the best that any step of the sweep came to."""
    return shown.report.roof_bytes_per_s or max(cell.row.bytes_read / cell.median_s for cell in shown.found.cells)


def _bytes_unit(most: int) -> tuple[int, str]:
    """The visitor's largest prefix that leaves at least one before the point."""
    step, names = (1024, ("KiB", "MiB", "GiB")) if units() == "binary" else (1000, ("kB", "MB", "GB"))
    power = next((power for power in (3, 2) if most >= step**power), 1)
    return step**power, names[power - 1]


def _draw(key: str, figure: Figure, alt: str) -> None:
    data = {
        "kind": "chart",
        "key": key,
        "language": language(),
        "figure": figure,
        "scales": ["xaxis"],
        "csv": False,
        "plotly": f"assets/{plotly_js().version}/plotly.min.js",
        "name": key,
        "alt": alt,
    }
    component("tbt_costs", "costs")(key=f"costs_{key}", data=data)
