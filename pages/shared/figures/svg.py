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
from typing import Literal, NamedTuple

Looks = Literal["line", "points", "area", "steps", "columns"]
MOST_TICKS = 5
LEAST_DOT_PIXELS = 4.0
"""From dot to dot in a column, at least."""
WIDE, NARROW = (720.0, 270.0), (350.0, 250.0)
"""Width and height of the two drawings, in pixels."""
_HEADROOM = 1.06
_MARGIN_LEFT, _MARGIN_RIGHT, _MARGIN_TOP, _MARGIN_BOTTOM = 56.0, 12.0, 26.0, 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One row of points, x rising.

    Attributes:
        colour: a CSS variable's name, as "--tbt-k".
        looks: a line, a line with points on it, an area under a line or under stairs (each y holds until the next x),
            or a column of dots up to each y.
        dash: of the line, as SVG writes it; empty for a solid one.
        shift: pixels to the right, so that the columns of two series stand side by side.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    looks: Looks = "line"
    dash: str = ""
    shift: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What a chart shows, and how it speaks. Series are drawn in order, the later ones over the earlier ones.

    Attributes:
        key: part of the ids, one of its own on the page.
        description: what the drawing shows, for those who do not see it.
        x_title, y_title: with their units.
        marks: places on the x axis, each with a word: a line from bottom to top.
        table_title, heads, rows: the numbers as text, below the drawing.
        write: a tick as text.
    """

    key: str
    title: str
    description: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    table_title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Sequence[tuple[float, str]] = ()
    whole_x: bool = True
    write: Callable[[float], str] = lambda value: f"{value:,.10g}"


class Frame(NamedTuple):
    """A drawing's size in pixels and the ends of its axes; y begins at 0."""

    width: float
    height: float
    x_first: float
    x_last: float
    y_most: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.x_first) / (self.x_last - self.x_first)
        return _MARGIN_LEFT + share * (self.width - _MARGIN_LEFT - _MARGIN_RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        room = self.height - _MARGIN_TOP - _MARGIN_BOTTOM
        return _MARGIN_TOP + room * (1 - value / self.y_most)


def chart_html(chart: Chart) -> str:
    """The chart: a key of its series, the drawing for wide and for narrow rooms, and its numbers to open."""
    drawings = "".join(_drawing(chart, kind, *size) for kind, size in (("wide", WIDE), ("narrow", NARROW)))
    key = "".join(_key(series) for series in chart.series)
    return (
        f'<figure class="tbt-svg" data-chart="{escape(chart.key)}"><figcaption><b>{escape(chart.title)}</b>{key}'
        f"</figcaption>{drawings}{_table(chart)}</figure>"
    )


def ticks(most: float, *, first: float = 0.0, whole: bool = False) -> list[float]:
    """Round numbers from `first` to `most`, at most six: steps of 1, 2 or 5 times a power of ten."""
    span = most - first
    if span <= 0:
        return [first]
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(size * power for size in (1, 2, 5, 10) if span / (size * power) <= MOST_TICKS * (1 + 1e-9))
    if whole:
        step = max(1.0, step)
    begin = math.ceil(first / step - 1e-9)
    return [float(f"{step * k:.12g}") for k in range(begin, math.floor(most / step + 1e-9) + 1)]


def dot_amount(most: float) -> int:
    """How much one dot of a column stands for where the highest column is `most`: 1, or 2, 5, 10, 20 …"""
    room = min(WIDE[1], NARROW[1]) - _MARGIN_TOP - _MARGIN_BOTTOM
    amount, sizes = 1, (2, 2.5, 2)
    for turn in range(60):
        if amount * room / (most * _HEADROOM or 1.0) >= LEAST_DOT_PIXELS:
            break
        amount = int(amount * sizes[turn % 3])
    return amount


def _drawing(chart: Chart, kind: str, width: float, height: float) -> str:
    frame = _frame(chart, width, height)
    ids = f"{escape(chart.key)}-{kind}"
    parts = [*_axes(chart, frame), *(_series(series, frame) for series in chart.series)]
    return (
        f'<svg class="tbt-svg-{kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{ids}-title {ids}-text"><title id="{ids}-title">{escape(chart.title)}</title>'
        f'<desc id="{ids}-text">{escape(chart.description)}</desc>{"".join(parts)}</svg>'
    )


def _frame(chart: Chart, width: float, height: float) -> Frame:
    xs = [x for series in chart.series for x, _ in series.points] or [0.0]
    most = max((y for series in chart.series for _, y in series.points), default=0.0)
    first, last = min(xs), max(xs)
    if first == last:
        first, last = first - 0.5, last + 0.5
    if any(series.looks == "columns" for series in chart.series):
        first, last = first - 0.5, last + 0.5
    return Frame(width, height, first, last, most * _HEADROOM if most > 0 else 1.0)


def _axes(chart: Chart, frame: Frame) -> Iterable[str]:
    left, right, bottom = _MARGIN_LEFT, frame.width - _MARGIN_RIGHT, frame.y(0)
    yield _text(4, 12, chart.y_title, "start", "tbt-svg-title")
    yield _text(right, frame.height - 4, chart.x_title, "end", "tbt-svg-title")
    for tick in ticks(frame.y_most):
        y = frame.y(tick)
        yield _line(left, y, right, y, "tbt-svg-grid" if tick else "tbt-svg-axis")
        yield _text(left - 6, y + 4, chart.write(tick), "end")
    for tick in ticks(frame.x_last, first=frame.x_first, whole=chart.whole_x):
        x = frame.x(tick)
        yield _line(x, bottom, x, bottom + 4, "tbt-svg-axis")
        yield _text(x, bottom + 16, chart.write(tick), "middle")
    for place, word in chart.marks:
        x = frame.x(place)
        yield _line(x, _MARGIN_TOP - 4, x, bottom, "tbt-svg-mark")
        is_right = x > frame.width / 2
        yield _text(x + (-4 if is_right else 4), _MARGIN_TOP + 4, word, "end" if is_right else "start")


def _series(series: Series, frame: Frame) -> str:
    """One series as one element, its points beside it."""
    places = [(frame.x(x) + series.shift, frame.y(y)) for x, y in series.points]
    if not places:
        return ""
    colour, bottom = f"var({escape(series.colour)})", frame.y(0)
    if series.looks == "columns":
        return _dots(series, frame, colour)
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
    is_area = series.looks in ("area", "steps")
    mark = f'<rect width="22" height="10" y="1" style="fill:var({escape(series.colour)})"/>'
    if not is_area:
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


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
