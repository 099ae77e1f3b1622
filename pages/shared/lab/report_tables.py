"""The lab report's tables: what was predicted, what was measured, what was fitted, on which machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from core.lab.fit import Fit
from core.lab.sweep.plan import Cell
from core.lab.sweep.report import BatchLaw, Checked, Findings, SweepReport, is_tested
from core.words import sentence
from pages.shared.html import Html, fill, join
from pages.shared.lab.written import column, duration, rate, share, signed_share, significant
from pages.shared.numbers import MINUS, count

_MACHINE = ("model", "shape", "dtype", "device", "processor", "cores", "system", "python", "torch")
_CORES = re.compile(r"(\d+), (\d+) used")
_NOTHING = "–"
MOST_NARROW = 5
"""Columns of a table that does not need the whole width."""
_CELL = '<td class="{kind}">{text}</td>'
_TABLE = (
    '<div class="tbt-scroll" tabindex="0" role="region" aria-label="{caption}"><table class="{kind}">'
    "<caption><span>{caption}</span></caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
)


def word(key: str, language: str, **values: object) -> str:
    """A text of the report."""
    return sentence(f"report.{key}", language, **values)


def prediction_table(found: Findings, language: str) -> Html:
    """What was thought, beside what was measured there."""
    ms = ms_column(found.cells)

    def row(one: Checked) -> list[str]:
        thought, measured = one.prediction, one.measured_s
        known = [word("not_measured", language), _NOTHING]
        if measured is not None and one.error is not None:
            known = [ms(1e3 * measured), signed_share(one.error)]
        return [count(thought.context), count(thought.batch), ms(1e3 * thought.step_s), *known]

    heads = ("n", "batch", "predicted", "measured", "error")
    return table(heads, map(row, found.checked), language, word("prediction_made", language))


def latency_table(found: Findings, language: str) -> Html:
    """Milliseconds, their law, and bytes over time."""
    ms, gigabytes = ms_column(found.cells), column([_read_rate(cell) / 1e9 for cell in found.cells], 3)

    def row(cell: Cell) -> list[str]:
        fitted = found.fitted_s(cell)
        law = [_NOTHING, _NOTHING]
        if fitted is not None:
            law = [ms(1e3 * fitted), ms(1e3 * (cell.median_s - fitted))]
        return [
            count(cell.context),
            count(cell.batch),
            f"{cell.n_used} / {cell.n_repeats}",
            ms(1e3 * cell.median_s),
            word(
                "quartiles_between",
                language,
                low=ms(1e3 * cell.first_quartile_s),
                high=ms(1e3 * cell.third_quartile_s),
            ),
            *law,
            gigabytes(_read_rate(cell) / 1e9),
        ]

    heads = ("n", "batch", "used", "median", "quartiles", "fitted", "residual", "rate")
    return table(heads, map(row, found.cells), language, word("table_latency", language))


def bytes_table(found: Findings, language: str) -> Html:
    """Bytes to the last one, and FLOP by both counts."""
    mflop = column([cell.row.flops_exact / 1e6 for cell in found.cells])
    megabytes = column([cell.row.bytes_read / 1e6 for cell in found.cells])

    def row(cell: Cell) -> list[str]:
        of = cell.row
        return [
            count(cell.context),
            count(cell.batch),
            count(of.kv_bytes_formula),
            count(of.kv_bytes_formula + cell.kv_gap_bytes),
            count(cell.kv_gap_bytes),
            mflop(of.flops_chapter / 1e6),
            mflop(of.flops_exact / 1e6),
            megabytes(of.bytes_read / 1e6),
        ]

    heads = ("n", "batch", "kv_formula", "kv_tensors", "gap", "flops_chapter", "flops_exact", "bytes_read")
    return table(heads, map(row, found.cells), language, word("table_bytes", language))


def joint_table(fit: Fit, language: str) -> Html:
    """The coefficients of all points' law, and what each stands for."""
    named = zip("abce", fit.coefficients, strict=True)
    rows = ([name, duration(value), word(f"term_{name}", language)] for name, value in named)
    return table(("term", "value", "meaning"), rows, language, word("table_joint", language), n_texts=1)


def batch_table(laws: Sequence[BatchLaw], language: str) -> Html:
    """Intercept and slope of every batch, and what they say."""

    def row(law: BatchLaw) -> list[str]:
        implied = law.implied_bytes_per_s
        return [
            count(law.batch),
            duration(law.intercept_s),
            duration(law.fit.seconds_per_position(law.batch)),
            r_squared(law.fit) if is_tested(law.fit) else word("untested_r_squared", language),
            share(law.intercept_share(law.cells[0])),
            share(law.intercept_share(law.cells[-1])),
            _NOTHING if implied is None else significant(implied / 1e9),
        ]

    heads = ("batch", "intercept", "slope", "r_squared", "share_first", "share_last", "implied")
    return table(heads, map(row, laws), language, word("table_batches", language))


def held_out_table(found: Findings, language: str) -> Html:
    """The points that the tested law had not seen."""
    tested = found.tested
    if tested is None:
        return Html("")
    ms = ms_column(found.cells)
    rows = []
    for point in tested.points:
        predicted = tested.fit.predict(point.context, point.batch)
        error = signed_share(predicted / point.seconds - 1)
        rows.append([count(point.context), count(point.batch), ms(1e3 * predicted), ms(1e3 * point.seconds), error])
    heads = ("n", "batch", "predicted", "measured", "error")
    return table(heads, rows, language, word("table_held_out", language))


def machine_facts(report: SweepReport, language: str) -> Html:
    """What the file's head says of the machine; what the report tells in sentences is left out here."""
    rows = [(word(f"machine_{name}", language), report.machine[name]) for name in _MACHINE if name in report.machine]
    if report.roof_bytes_per_s is not None:
        rows.append((word("machine_roof", language), rate(report.roof_bytes_per_s)))
    line = "<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>"
    lines = (fill(line, name=name, value=_cores(value, language)) for name, value in rows)
    return fill('<dl class="tbt-report-machine">{lines}</dl>', lines=join(lines))


def _read_rate(cell: Cell) -> float:
    """Bytes a second: what a step has to read at least, over its time."""
    return cell.row.bytes_read / cell.median_s


def ms_column(cells: Sequence[Cell]) -> Callable[[float], str]:
    """Writes milliseconds of these cells."""
    return column([1e3 * cell.median_s for cell in cells], 3)


def r_squared(fit: Fit) -> str:
    """To four decimals."""
    return f"{fit.r_squared:.4f}".replace("-", MINUS)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    language: str,
    caption: str,
    n_texts: int = 0,
    area: str = "report",
) -> Html:
    """A table of numbers, the first column included; the last `n_texts` columns hold words. `area`: of the heads."""
    names = [sentence(f"{area}.head_{head}", language) for head in heads]
    kinds = [*["tbt-number"] * (len(heads) - n_texts), *["tbt-report-words"] * n_texts]
    return fill(
        _TABLE,
        kind="tbt-report-narrow" if len(heads) <= MOST_NARROW else "tbt-report-full",
        caption=caption,
        head=_cells('<th scope="col" class="{kind}">{text}</th>', kinds, names),
        lines=join(fill("<tr>{cells}</tr>", cells=_cells(_CELL, kinds, row)) for row in rows),
    )


def _cells(template: str, kinds: Sequence[str], texts: Sequence[str]) -> Html:
    return join(fill(template, kind=kind, text=text) for kind, text in zip(kinds, texts, strict=True))


def _cores(value: str, language: str) -> str:
    found = _CORES.fullmatch(value)
    return word("machine_cores_used", language, all=found[1], used=found[2]) if found else value
