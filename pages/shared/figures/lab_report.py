"""The lab report's figures: steps against n with their law, what the law leaves over, bytes, and n against B."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from core.lab.sweep.plan import Cell
from core.lab.sweep.report import Findings
from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html
from pages.shared.figures.svg_heatmap import Heatmap, heatmap_html
from pages.shared.figures.svg_marks import SHAPES, Shape

MOST_BATCHES = len(SHAPES)
"""More are not told apart in one drawing."""
DECODE, KV, GUESS = "--tbt-decode", "--tbt-k", "--tbt-ink"
MS = 1e3
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
Write = Callable[[float], str]


def drawn_batches(found: Findings) -> list[int]:
    """Those that the line charts show."""
    return with_shapes({cell.batch for cell in found.cells})


def with_shapes(values: Iterable[int]) -> list[int]:
    """Rising, all, or as many as have shapes, the smallest and the largest among them."""
    rising = sorted(values)
    if len(rising) <= MOST_BATCHES:
        return rising
    last = len(rising) - 1
    return [rising[round(place * last / (MOST_BATCHES - 1))] for place in range(MOST_BATCHES)]


def latency_chart(found: Findings, language: str, write: Write) -> str:
    """Medians with quartiles, the law's line from n = 0 on, and the predictions as hollow marks."""
    marks, lines, guesses = [], [], []
    for batch, shape in _shaped(found):
        own = _of(found, batch)
        fit = found.drawn(batch)
        last = own[-1].context
        if fit is not None:
            ends = [(n, max(0.0, fit.predict(n, batch)) * MS) for n in (0, last)]
            lines.append(Series(name="", points=ends, colour=DECODE, dash="5 3"))
        marks.append(
            Series(
                name=_batch(batch, language),
                points=[(cell.context, cell.median_s * MS) for cell in own],
                spread=[(cell.first_quartile_s * MS, cell.third_quartile_s * MS) for cell in own],
                colour=DECODE,
                looks="marks",
                shape=shape,
                label=f"B = {batch:,}",
            )
        )
        thought = [one.prediction for one in found.checked if one.prediction.batch == batch]
        points = sorted((one.context, one.step_s * MS) for one in thought)
        guesses.append(Series(name="", points=points, colour=GUESS, looks="marks", shape=shape, is_hollow=True))
    keys = []
    if lines:
        keys.append(Series(name=_word("key_law", language), points=[], colour=DECODE, dash="5 3"))
    if any(series.points for series in guesses):
        keys.append(_key_mark("key_prediction", language, GUESS, is_hollow=True))
    return chart_html(
        Chart(
            key="report-latency",
            title=_word("figure_latency", language),
            description=_word("figure_latency_text", language),
            x_title=_word("axis_n", language),
            y_title=_word("axis_step", language),
            series=[*marks, *lines, *guesses, *keys],
            write=write,
        )
    )


def residual_chart(found: Findings, language: str, write: Write) -> str:
    """Measured less fitted; points on the axis are met."""
    series = []
    for batch, shape in _shaped(found):
        points = [
            (cell.context, (cell.median_s - fitted) * MS)
            for cell in _of(found, batch)
            if (fitted := found.fitted_s(cell)) is not None
        ]
        name = _batch(batch, language)
        series.append(Series(name=name, points=points, colour=DECODE, looks="marks", shape=shape))
    ends = [(float(n), 0.0) for n in (0, max(cell.context for cell in found.cells))]
    law = Series(name=_word("key_law", language), points=ends, colour=DECODE, dash="5 3")
    return chart_html(
        Chart(
            key="report-residuals",
            title=_word("figure_residuals", language),
            description=_word("figure_residuals_text", language),
            x_title=_word("axis_n", language),
            y_title=_word("axis_residual", language),
            series=[one for one in [*series, law] if one.points],
            write=write,
        )
    )


def kv_chart(found: Findings, language: str, write: Write) -> str:
    """The formula's lines and the tensors' marks."""
    most = max((cell.row.kv_bytes_measured for cell in found.cells), default=1)
    size, unit = next(pair for pair in _UNITS if most >= pair[0] or pair[0] == 1)
    lines, marks = [], []
    for batch, shape in _shaped(found):
        own = _of(found, batch)
        formula = [(cell.context, cell.row.kv_bytes_formula / size) for cell in own]
        begin = [(0, 0.0)] if found.position_bytes is not None else []  # where it is a line from there on
        tensors = [(cell.context, cell.row.kv_bytes_measured / size) for cell in own]
        lines.append(Series(name="", points=[*begin, *formula], colour=KV, dash="5 3"))
        name, label = _batch(batch, language), f"B = {batch:,}"
        marks.append(Series(name=name, points=tensors, colour=KV, looks="marks", shape=shape, label=label))
    key = Series(name=_word("key_formula", language), points=[], colour=KV, dash="5 3")
    return chart_html(
        Chart(
            key="report-kv",
            title=_word("figure_kv", language),
            description=_word("figure_kv_text", language),
            x_title=_word("axis_n", language),
            y_title=_word("axis_kv", language, unit=unit),
            series=[*lines, *marks, key],
            write=write,
        )
    )


def step_heatmap(found: Findings, language: str, write: Write) -> str:
    """Median milliseconds of every cell."""
    return heatmap_html(
        Heatmap(
            key="report-heatmap",
            title=_word("figure_heatmap", language),
            description=_word("figure_heatmap_text", language),
            rows=sorted({cell.context for cell in found.cells}),
            columns=sorted({cell.batch for cell in found.cells}),
            values={(cell.context, cell.batch): cell.median_s * MS for cell in found.cells},
            row_title=_word("axis_n", language),
            column_title=_word("axis_batch", language),
            colour=DECODE,
            write=write,
        )
    )


def _shaped(found: Findings) -> Sequence[tuple[int, Shape]]:
    return list(zip(drawn_batches(found), SHAPES, strict=False))


def _of(found: Findings, batch: int) -> list[Cell]:
    return [cell for cell in found.cells if cell.batch == batch]


def _key_mark(key: str, language: str, colour: str, *, is_hollow: bool) -> Series:
    return Series(name=_word(key, language), points=[], colour=colour, looks="marks", is_hollow=is_hollow)


def _batch(batch: int, language: str) -> str:
    return _word("key_batch", language, batch=f"{batch:,}")


def _word(key: str, language: str, **values: object) -> str:
    return sentence(f"report.{key}", language, **values)
