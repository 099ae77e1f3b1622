"""What the law says of a sweep, as tables and sentences: bytes, fits, the intercept, predictions, the takeaway."""

from __future__ import annotations

from core.lab.sweep.plan import Cell
from core.lab.sweep.report import BatchLaw, Findings, is_tested
from pages.shared.html import Html, fill
from pages.shared.html_parts import row, table
from pages.shared.lab.shown import Shown
from pages.shared.language import t
from pages.shared.numbers import MINUS, count, milliseconds, percent, scaled_bytes
from pages.shared.units import units


def kv_table(shown: Shown) -> Html:
    """Formula, tensors and the gap at every point."""
    rows = [
        row(
            count(cell.context),
            count(cell.batch),
            count(cell.row.kv_bytes_formula),
            count(cell.row.kv_bytes_measured),
            count(cell.kv_gap_bytes),
        )
        for cell in shown.found.cells
    ]
    return table([t(f"lab.head_{name}") for name in ("n", "batch", "kv_formula", "kv_tensors", "gap")], rows)


def points_table(shown: Shown) -> Html:
    """Medians with quartiles, the bytes a second that a step reads, and its FLOP a second."""
    rows = [
        row(
            count(cell.context),
            count(cell.batch),
            t("lab.of_repeats", used=count(cell.n_used), all=count(cell.n_repeats)),
            milliseconds(cell.median_s),
            f"{milliseconds(cell.first_quartile_s)} – {milliseconds(cell.third_quartile_s)}",
            gigabytes(cell.row.bytes_read / cell.median_s),
            f"{cell.row.flops_exact / cell.median_s / 1e9:,.2f}",
            f"{cell.batch / cell.median_s:,.1f}",
        )
        for cell in shown.found.cells
    ]
    heads = ("n", "batch", "repeats", "median", "quartiles", "read_rate", "flop_rate", "tokens_rate")
    return table([t(f"lab.head_{name}") for name in heads], rows)


def fit_table(shown: Shown) -> Html:
    """a + b·n batch by batch, and all points together."""
    found = shown.found
    rows = [_law_row(law) for law in found.laws]
    if found.joint is not None:
        joint = found.joint
        terms = " ".join(
            f"{signed(1e3 * value)}{'' if term == '1' else f'·{term}'}"
            for term, value in zip(joint.terms, joint.coefficients, strict=True)
        )
        rows.append(
            fill(
                '<tr><td>{name}</td><td colspan="2">{terms}</td><td>{r}</td><td>–</td></tr>',
                name=t("lab.joint"),
                terms=f"{terms.removeprefix('+')} ms",
                r=f"{joint.r_squared:.4f}" if is_tested(joint) else "–",
            )
        )
    return table([t(f"lab.head_{name}") for name in ("law_batch", "intercept", "slope", "r_squared", "implied")], rows)


def _law_row(law: BatchLaw) -> Html:
    implied = law.implied_bytes_per_s
    return row(
        f"B={count(law.batch)}",
        f"{signed(1e3 * law.intercept_s).removeprefix('+')} ms",
        f"{signed(1e6 * law.fit.seconds_per_position(law.batch)).removeprefix('+')} µs",
        f"{law.fit.r_squared:.4f}" if is_tested(law.fit) else "–",
        "–" if implied is None else f"{gigabytes(implied)} GB/s",
    )


def fit_remarks(shown: Shown) -> list[str]:
    """Held-out points, the roof beside what the slope implies, the intercept, and what is below its floor."""
    found, said = shown.found, []
    if found.tested is not None and found.joint is not None:
        used = len(found.cells) - len(found.tested.points)
        error = percent(found.tested.median_error)
        said.append(t("lab.held_out", used=count(used), out=count(len(found.tested.points)), error=error))
    said.append(_roof(shown))
    said += _intercept(found, shown.report.roof_bytes_per_s)
    below = shown.report.roof_bytes_per_s and [
        cell for cell in found.cells if cell.median_s < cell.row.bytes_read / shown.report.roof_bytes_per_s
    ]
    if below:
        said.append(t("lab.below_floor", n=count(len(below))))
    if found.n_disturbed:
        said.append(t("lab.disturbed", n=count(found.n_disturbed), all=count(len(shown.report.rows))))
    return said


def _roof(shown: Shown) -> str:
    roof = shown.report.roof_bytes_per_s
    best = max(cell.row.bytes_read / cell.median_s for cell in shown.found.cells)
    if roof is None:
        return t("lab.no_roof", best=gigabytes(best))
    return t("lab.roof", roof=gigabytes(roof), best=gigabytes(best), share=percent(best / roof))


def _intercept(found: Findings, roof: float | None) -> list[str]:
    """How much of the shortest and the longest step does not depend on n, for the first batch that grows with it."""
    law = next((law for law in found.laws if law.fit.coefficient("n") > 0), None)
    if law is None:
        return []
    first, last = law.cells[0], law.cells[-1]
    if law.intercept_s <= 0:
        return [t("lab.intercept_negative", batch=count(law.batch))]
    values = {
        "batch": count(law.batch),
        "intercept": milliseconds(law.intercept_s),
        "first": count(first.context),
        "last": count(last.context),
        "first_share": share(law.intercept_share(first)),
        "last_share": share(law.intercept_share(last)),
    }
    said = [t("lab.intercept", **values)]
    if found.weight_bytes is not None and roof is not None:
        weights = found.weight_bytes / roof
        rest = milliseconds(max(0.0, law.intercept_s - weights))
        said.append(
            t(
                "lab.intercept_parts",
                weights=scaled_bytes(found.weight_bytes, units()),
                seconds=milliseconds(weights),
                rest=rest,
            )
        )
    elif found.weight_bytes is not None:
        said.append(t("lab.intercept_weights", weights=scaled_bytes(found.weight_bytes, units())))
    return said


def predictions_table(shown: Shown) -> Html | None:
    """What was predicted beside what came out; None where nothing was predicted."""
    checked = shown.found.checked
    if not checked:
        return None
    rows = [
        row(
            count(one.prediction.context),
            count(one.prediction.batch),
            milliseconds(one.prediction.step_s),
            "–" if one.measured_s is None else milliseconds(one.measured_s),
            "–" if one.error is None else f"{one.error:+.0%}".replace("-", MINUS),
        )
        for one in checked
    ]
    return table([t(f"lab.head_{name}") for name in ("n", "batch", "predicted", "measured", "off")], rows)


def takeaway_text(shown: Shown) -> str:
    """What the rows prove, in one sentence or two."""
    found = shown.found
    gap = t("lab.takeaway_gap", points=count(len(found.cells)), gap=count(found.kv_gap_bytes))
    if not found.laws:
        return gap
    law = found.laws[-1]
    first, last = law.cells[0], law.cells[-1]
    values = {
        "batch": count(law.batch),
        "first": count(first.context),
        "last": count(last.context),
        "kv": f"{last.row.kv_bytes_formula / first.row.kv_bytes_formula:.1f}",
        "seconds": f"{last.median_s / first.median_s:.2f}",
        "share": share(law.intercept_share(last)),
    }
    key = "lab.takeaway" if law.fit.coefficient("n") > 0 else "lab.takeaway_flat"
    return f"{gap} {t(key, **values)}"


def slowest_cell(shown: Shown) -> Cell | None:
    """At the longest context of the largest batch."""
    return max(shown.found.cells, key=lambda cell: (cell.batch, cell.context), default=None)


def gigabytes(bytes_per_s: float) -> str:
    """A bandwidth in GB/s: 12.34, 3,350."""
    value = bytes_per_s / 1e9
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def share(value: float) -> str:
    """A share that a fit may put a little beyond 1."""
    return percent(min(1.0, max(0.0, value)))


def signed(value: float) -> str:
    """Four significant digits with a sign: +12.31, −0.004213."""
    return f"{value:+.4g}".replace("-", MINUS)
