"""Line charts as SVG text: numbers in, a drawing with its table out. No plotly, no script.

A chart is drawn twice, wide and narrow, and the style sheet shows the one that the room is for: text keeps its size.
Colours are CSS variables, so that a drawing follows the page's theme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Literal

from pages.shared.figures.svg_frame import (
    MARGIN_BOTTOM,
    MARGIN_LEFT,
    MARGIN_RIGHT,
    MARGIN_TOP,
    Frame,
    svg_line,
    svg_text,
    ticks,
)
from pages.shared.figures.svg_marks import Shape, apart, shape_svg, spread_svg

Looks = Literal["line", "points", "area", "steps", "columns", "marks"]
LEAST_DOT_PIXELS = 4.0
"""From dot to dot in a column, at least."""
WIDE, NARROW = (720.0, 270.0), (350.0, 250.0)
"""Width and height of the two drawings, in pixels."""
_HEADROOM = 1.06
_LETTER_PIXELS = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One row of points, x rising.

    Attributes:
        name: what the key calls it; empty for one that the key leaves out.
        colour: a CSS variable's name, as "--tbt-k".
        looks: a line, a line with points on it, an area under a line or under stairs (each y holds until the next x),
            a column of dots up to each y, or marks of a shape of their own.
        dash: of the line, as SVG writes it; empty for a solid one.
        shift: pixels to the right, so that the columns of two series stand side by side.
        shape, is_hollow: of marks.
        spread: of marks, from where to where the bar of each goes; empty for none.
        label: written right of the last point.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    looks: Looks = "line"
    dash: str = ""
    shift: float = 0.0
    shape: Shape = "circle"
    is_hollow: bool = False
    spread: Sequence[tuple[float, float]] = ()
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What a chart shows, and how it speaks. Series are drawn in order, the later ones over the earlier ones.

    Attributes:
        key: part of the ids, one of its own on the page.
        description: what the drawing shows, for those who do not see it.
        x_title, y_title: with their units.
        marks: places on the x axis, each with a word: a line from bottom to top.
        table_title, heads, rows: the numbers as text, below the drawing; without heads there are none.
        write: a tick as text.
    """

    key: str
    title: str
    description: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    table_title: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    marks: Sequence[tuple[float, str]] = ()
    whole_x: bool = True
    write: Callable[[float], str] = lambda value: f"{value:,.10g}"


def chart_html(chart: Chart) -> str:
    """The chart: a key of its series, the drawing for wide and for narrow rooms, and its numbers to open."""
    drawings = "".join(_drawing(chart, kind, *size) for kind, size in (("wide", WIDE), ("narrow", NARROW)))
    key = "".join(_key(series) for series in chart.series if series.name)
    return (
        f'<figure class="tbt-svg" data-chart="{escape(chart.key)}"><figcaption><b>{escape(chart.title)}</b>{key}'
        f"</figcaption>{drawings}{_table(chart) if chart.heads else ''}</figure>"
    )


def dot_amount(most: float) -> int:
    """How much one dot of a column stands for where the highest column is `most`: 1, or 2, 5, 10, 20 …"""
    room = min(WIDE[1], NARROW[1]) - MARGIN_TOP - MARGIN_BOTTOM
    amount, sizes = 1, (2, 2.5, 2)
    for turn in range(60):
        if amount * room / (most * _HEADROOM or 1.0) >= LEAST_DOT_PIXELS:
            break
        amount = int(amount * sizes[turn % 3])
    return amount


def _drawing(chart: Chart, kind: str, width: float, height: float) -> str:
    frame = _frame(chart, width, height)
    ids = f"{escape(chart.key)}-{kind}"
    parts = [*_axes(chart, frame), *(_series(series, frame) for series in chart.series), *_labels(chart, frame)]
    return (
        f'<svg class="tbt-svg-{kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{ids}-title {ids}-text"><title id="{ids}-title">{escape(chart.title)}</title>'
        f'<desc id="{ids}-text">{escape(chart.description)}</desc>{"".join(parts)}</svg>'
    )


def _frame(chart: Chart, width: float, height: float) -> Frame:
    xs = [x for series in chart.series for x, _ in series.points] or [0.0]
    ys = [y for series in chart.series for _, y in series.points]
    ys += [end for series in chart.series for ends in series.spread for end in ends]
    most, least = max(ys, default=0.0), min([0.0, *ys])
    first, last = min(xs), max(xs)
    if first == last:
        first, last = first - 0.5, last + 0.5
    if any(series.looks == "columns" for series in chart.series):
        first, last = first - 0.5, last + 0.5
    longest = max((len(series.label) for series in chart.series), default=0)
    right = MARGIN_RIGHT + _LETTER_PIXELS * longest
    highest = most * _HEADROOM if most > 0 else 0.0 if least < 0 else 1.0
    return Frame(width, height, first, last, highest, least * _HEADROOM, right)


def _axes(chart: Chart, frame: Frame) -> Iterable[str]:
    left, right, bottom = MARGIN_LEFT, frame.width - frame.right, frame.y(frame.y_least)
    yield svg_text(4, 12, chart.y_title, "start", "tbt-svg-title")
    yield svg_text(right, frame.height - 4, chart.x_title, "end", "tbt-svg-title")
    for tick in ticks(frame.y_most, first=frame.y_least):
        y = frame.y(tick)
        yield svg_line(left, y, right, y, "tbt-svg-grid" if tick else "tbt-svg-axis")
        yield svg_text(left - 6, y + 4, chart.write(tick), "end")
    if frame.y_least < 0:
        yield svg_line(left, bottom, right, bottom, "tbt-svg-axis")
    for tick in ticks(frame.x_last, first=frame.x_first, whole=chart.whole_x):
        x = frame.x(tick)
        yield svg_line(x, bottom, x, bottom + 4, "tbt-svg-axis")
        yield svg_text(x, bottom + 16, chart.write(tick), "middle")
    for place, word in chart.marks:
        x = frame.x(place)
        yield svg_line(x, MARGIN_TOP - 4, x, bottom, "tbt-svg-mark")
        is_right = x > frame.width / 2
        yield svg_text(x + (-4 if is_right else 4), MARGIN_TOP + 4, word, "end" if is_right else "start")


def _labels(chart: Chart, frame: Frame) -> Iterable[str]:
    """Each beside the last point of its series, none over another."""
    labelled = [series for series in chart.series if series.label and series.points]
    heights = apart([frame.y(series.points[-1][1]) for series in labelled])
    for series, y in zip(labelled, heights, strict=True):
        yield svg_text(frame.x(series.points[-1][0]) + 8, y + 4, series.label, "start")


def _series(series: Series, frame: Frame) -> str:
    """One series as one element, its points beside it."""
    places = [(frame.x(x) + series.shift, frame.y(y)) for x, y in series.points]
    if not places:
        return ""
    colour, bottom = f"var({escape(series.colour)})", frame.y(0)
    if series.looks == "columns":
        return _dots(series, frame, colour)
    if series.looks == "marks":
        ends = zip(places, series.spread, strict=False)
        bars = (spread_svg(x, frame.y(low), frame.y(high), colour) for (x, _), (low, high) in ends)
        return "".join([*bars, *(shape_svg(series.shape, x, y, colour, hollow=series.is_hollow) for x, y in places)])
    if series.looks in ("area", "steps"):
        outline = _stairs(places) if series.looks == "steps" else places
        path = f"M{outline[0][0]:.1f} {bottom:.1f}{_through(outline, 'L')}L{outline[-1][0]:.1f} {bottom:.1f}Z"
        return f'<path d="{path}" style="fill:{colour}"/>'
    dash = f' stroke-dasharray="{escape(series.dash)}"' if series.dash else ""
    line = f'<path d="{_through(places, "M")}" fill="none" style="stroke:{colour}" stroke-width="2"{dash}/>'
    if series.looks == "line" and len(places) > 1:
        return line
    return line + "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" style="fill:{colour}"/>' for x, y in places)


def _dots(series: Series, frame: Frame, colour: str) -> str:
    """Columns of dots, each for the same amount, begun ones included: dashes of no length with round ends."""
    amount = dot_amount(frame.y_most / _HEADROOM)
    pitch = frame.y(0) - frame.y(amount)
    path = ""
    for x, y in series.points:
        n_dots = math.ceil(y / amount)
        if n_dots:
            place, first = frame.x(x) + series.shift, frame.y(amount / 2)
            path += f"M{place:.1f} {first:.2f}v{-(n_dots - 1) * pitch - 0.1:.2f}"
    size = min(3.6, 0.7 * pitch)
    dashes = f'stroke-dasharray="0 {pitch:.3f}" stroke-linecap="round" stroke-width="{size:.2f}"'
    return f'<path d="{path}" fill="none" style="stroke:{colour}" {dashes}/>'


def _stairs(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each height kept until the next place."""
    outline = [places[0]]
    for (_, y), (x, next_y) in pairwise(places):
        outline += [(x, y), (x, next_y)]
    return outline


def _through(places: Sequence[tuple[float, float]], begin: str) -> str:
    return "".join(f"{'L' if index else begin}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(places))


def _key(series: Series) -> str:
    mark = f'<rect width="22" height="10" y="1" style="fill:var({escape(series.colour)})"/>'
    if series.looks == "marks":
        mark = shape_svg(series.shape, 11, 6, f"var({escape(series.colour)})", hollow=series.is_hollow)
    elif series.looks not in ("area", "steps"):
        dash = "0 5" if series.looks == "columns" else series.dash
        ends = ' stroke-linecap="round" stroke-width="3.4"' if series.looks == "columns" else ' stroke-width="2.5"'
        dashes = f' stroke-dasharray="{escape(dash)}"' if dash else ""
        mark = f'<path d="M2 6H21" style="stroke:var({escape(series.colour)})"{ends}{dashes}/>'
    sign = f'<svg viewBox="0 0 22 12" width="22" height="12" aria-hidden="true">{mark}</svg>'
    return f"<span>{sign}{escape(series.name)}</span>"


def _table(chart: Chart) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in chart.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in chart.rows)
    return (
        f'<details><summary>{escape(chart.table_title)}</summary><div class="tbt-scroll" tabindex="0" role="region" '
        f'aria-label="{escape(chart.title)}"><table class="tbt-facts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )
