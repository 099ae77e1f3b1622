"""A server's sweep as drawings: times against n with the floors under them, tokens a second against B."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.estimate.floors import Floor
from core.lab.remote.findings import ServerCell, ServerFindings
from core.lab.remote.under import Under
from core.lab.spread import Spread
from core.words import sentence
from pages.shared.figures.lab_report import with_shapes
from pages.shared.figures.svg import Chart, Series, chart_html
from pages.shared.figures.svg_marks import SHAPES, Shape

DECODE, PREFILL, FLOOR, EARLIER = "--tbt-decode", "--tbt-prefill", "--tbt-ink", "--tbt-weights-ink"
FLOOR_DASH = "5 3"
MS, SECONDS_FROM_S = 1e3, 2.0
"""Milliseconds, but seconds where the longest time has at least so many of them."""
Floors = Mapping[tuple[int, int], Under]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What one of the two charts against n shows of a cell."""

    name: str
    colour: str
    measured: Callable[[ServerCell], Spread | None]
    floor: Callable[[Under], Floor | None]


_STEP = _Kind(name="step", colour=DECODE, measured=lambda cell: cell.step, floor=lambda under: under.step)
_FIRST = _Kind(name="first", colour=PREFILL, measured=lambda cell: cell.ttft, floor=lambda under: under.first)


def step_chart(found: ServerFindings, floors: Floors, earlier: ServerFindings | None, language: str) -> str:
    """Seconds a token, batch by batch. Hollow marks: of whole answers, where the requests did not write together."""
    return _against_n(_STEP, found, floors, earlier, language)


def first_chart(found: ServerFindings, floors: Floors, earlier: ServerFindings | None, language: str) -> str:
    """Seconds to the first token, batch by batch."""
    return _against_n(_FIRST, found, floors, earlier, language)


def tokens_chart(found: ServerFindings, language: str) -> str:
    """Tokens a second of the whole against B, context by context; "" where nothing was written together."""
    known = [(cell, rate) for cell in found.cells if (rate := cell.tokens_per_s) is not None]
    if not known:
        return ""
    series = []
    for context, shape in zip(with_shapes({cell.context for cell, _ in known}), SHAPES, strict=False):
        points = [(float(cell.batch), rate) for cell, rate in known if cell.context == context]
        series += _lined(points, [], DECODE, shape, f"n = {context:,}", f"n={context:,}")
    most_cell, most = max(known, key=lambda pair: pair[1])
    return chart_html(
        Chart(
            key="server-tokens",
            title=_word("chart_tokens", language),
            description=_word("chart_tokens_text", language, rate=f"{most:,.0f}", batch=f"{most_cell.batch:,}"),
            x_title=_word("axis_batch", language),
            y_title=_word("axis_tokens", language),
            series=series,
        )
    )


def _against_n(
    kind: _Kind, found: ServerFindings, floors: Floors, earlier: ServerFindings | None, language: str
) -> str:
    every = [spread for cell in found.cells if (spread := kind.measured(cell))]
    if not every:
        return ""
    scale, unit = (1.0, "s") if max(one.median_s for one in every) >= SECONDS_FROM_S else (MS, "ms")
    below, above = [], []
    for batch, shape in zip(with_shapes(found.batches), SHAPES, strict=False):
        cells = found.of(batch)
        below.append(Series(name="", points=_floor_line(kind, cells, floors, scale), colour=FLOOR, dash=FLOOR_DASH))
        if earlier is not None:
            points, _ = _measured(kind, earlier.of(batch), scale)
            above.append(Series(name="", points=points, colour=EARLIER, looks="marks", shape=shape))
        above += _batch_series(kind, cells, scale, shape, batch)
    keys = []
    if any(series.points for series in below):
        keys.append(Series(name=_word("key_floor", language), points=[], colour=FLOOR, dash=FLOOR_DASH))
    if earlier is not None:
        keys.append(Series(name=_word("key_earlier", language), points=[], colour=EARLIER, looks="marks"))
    if kind is _STEP and any(cell.step and not cell.is_together for cell in found.cells):
        keys.append(Series(name=_word("key_apart", language), points=[], colour=DECODE, looks="marks", is_hollow=True))
    longest = max(every, key=lambda one: one.median_s).median_s
    return chart_html(
        Chart(
            key=f"server-{kind.name}",
            title=_word(f"chart_{kind.name}", language),
            description=_word(f"chart_{kind.name}_text", language, longest=f"{longest * scale:,.4g} {unit}"),
            x_title=_word("axis_n", language),
            y_title=_word(f"axis_{kind.name}", language, unit=unit),
            series=[*below, *above, *keys],
        )
    )


def _batch_series(kind: _Kind, cells: Sequence[ServerCell], scale: float, shape: Shape, batch: int) -> list[Series]:
    """A line with marks; for times of whole answers marks alone, hollow ones."""
    solid = [cell for cell in cells if kind is _FIRST or cell.is_together]
    apart = [cell for cell in cells if cell not in solid]
    points, spread = _measured(kind, solid, scale)
    lone, lone_spread = _measured(kind, apart, scale)
    label, name = f"B={batch:,}", f"B = {batch:,}"
    hollow = Series(
        name="" if points else name,
        points=lone,
        spread=lone_spread,
        colour=kind.colour,
        looks="marks",
        shape=shape,
        is_hollow=True,
        label="" if points else label,
    )
    return [*_lined(points, spread, kind.colour, shape, name, label), *([hollow] if lone else [])]


def _lined(
    points: list[tuple[float, float]],
    spread: list[tuple[float, float]],
    colour: str,
    shape: Shape,
    name: str,
    label: str,
) -> list[Series]:
    """Marks of a shape, and a line through them; nothing for no points."""
    if not points:
        return []
    marks = Series(name=name, points=points, spread=spread, colour=colour, looks="marks", shape=shape, label=label)
    return [Series(name="", points=points, colour=colour), marks] if len(points) > 1 else [marks]


def _measured(
    kind: _Kind, cells: Sequence[ServerCell], scale: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    known = [(cell, spread) for cell in cells if (spread := kind.measured(cell))]
    points = [(float(cell.context), scale * spread.median_s) for cell, spread in known]
    return points, [(scale * spread.first_quartile_s, scale * spread.third_quartile_s) for _, spread in known]


def _floor_line(kind: _Kind, cells: Sequence[ServerCell], floors: Floors, scale: float) -> list[tuple[float, float]]:
    """Through the floors of what a line of marks goes through: that of a lone request would bend it down."""
    found = []
    for cell in cells:
        if kind is _STEP and not cell.is_together:
            continue
        under = floors.get((cell.context, cell.batch))
        floor = kind.floor(under) if under is not None else None
        if floor is not None:
            found.append((float(cell.context), scale * float(floor.seconds)))
    return found


def _word(key: str, language: str, **values: object) -> str:
    return sentence(f"server.{key}", language, **values)
