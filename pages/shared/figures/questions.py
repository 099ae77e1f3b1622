"""A prediction beside what came out: marks on a logarithmic strip, or two curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

from core.questions.judge import CLOSE_FACTOR, NEAR_FACTOR
from core.words import sentence
from pages.shared.figures.svg import NARROW, WIDE, Chart, Series, chart_html

SAID, OUTCOME, BELIEVED = "--tbt-q", "--tbt-decode", "--tbt-weights"
_COLOURS = {"said": SAID, "outcome": OUTCOME, "believed": BELIEVED}
_LINES = {
    "queries": ("--tbt-q", ""),
    "keys": ("--tbt-k", "6 4"),
    "before": ("--tbt-muted", "6 4"),
    "after": ("--tbt-ink", ""),
}
"""Colour and dashes of each line an experiment may draw."""
SEPARATOR = " · "
HEIGHT, _LINE, _SIDE = 150.0, 70.0, 14.0
"""Pixels: of the strip, from its top to the axis, and left and right of it."""
_ROWS = {"said": 34.0, "outcome": 116.0, "believed": 138.0}
"""Where each mark's words stand: one above the axis, two below its ticks."""
_MOST_DECADES_WITH_HALVES = 1.8
_HALF_LETTER = 4.0
"""Pixels: half the width of a letter of a tick's label, and a little room."""


class Mark(NamedTuple):
    """A value on the strip, above 0, and what stands beside it."""

    kind: Literal["said", "outcome", "believed"]
    value: float
    text: str


class Scale(NamedTuple):
    """Powers of ten between which a strip lies, and its width in pixels."""

    low: float
    high: float
    width: float

    def x(self, value: float) -> float:
        """Pixels from the left; what lies outside stands at the edge."""
        share = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return _SIDE + min(1.0, max(0.0, share)) * (self.width - 2 * _SIDE)


def strip_html(
    key: str,
    marks: Sequence[Mark],
    description: str,
    language: str,
    write: Callable[[float], str],
    thousand: int = 1000,
) -> str:
    """The strip for wide and for narrow rooms; the zones around the outcome are those in which a prediction is judged.

    `marks` hold the outcome; a mark at or below 0 stands at the left edge. `thousand` as in `ticks_for`.
    """
    title = sentence("questions.strip_title", language)
    drawings = "".join(
        _drawing(f"{key}-{kind}", kind, marks, width, (title, description), write, thousand)
        for kind, (width, _) in (("wide", WIDE), ("narrow", NARROW))
    )
    zones = sentence("questions.strip_zones", language, close=f"{CLOSE_FACTOR:g}", near=f"{NEAR_FACTOR:g}")
    note = f'<p class="tbt-note">{escape(zones)}</p>'
    return f'<figure class="tbt-svg tbt-question-strip" data-chart="{escape(key)}">{drawings}{note}</figure>'


def curves_html(
    places: Sequence[int], said: Sequence[float], right: Sequence[float], language: str, write: Callable[[float], str]
) -> str:
    """The curve that was drawn against the one that came out, both in times their first height, which is 1."""

    def word(key: str, **values: object) -> str:
        return sentence(f"questions.{key}", language, **values)

    curves = [[1.0, *heights] for heights in (said, right)]
    drawn = [list(zip(places, curve, strict=True)) for curve in curves]
    return chart_html(
        Chart(
            key="question-curves",
            title=word("curve_title"),
            description=word("curve_text", said=write(curves[0][-1]), right=write(curves[1][-1])),
            x_title=word("curve_x"),
            y_title=word("curve_y"),
            series=[
                Series(name=word("mark_said"), points=drawn[0], colour=SAID, looks="points", dash="6 4"),
                Series(name=word("mark_outcome"), points=drawn[1], colour=OUTCOME, looks="points"),
            ],
            table_title=word("curve_table"),
            heads=[word("curve_x"), word("mark_said"), word("mark_outcome")],
            rows=[[f"{n:,}", write(one), write(other)] for n, one, other in zip(places, *curves, strict=True)],
        )
    )


def lines_html(key: str, lines: Mapping[str, Sequence[float]], language: str, write: Callable[[float], str]) -> str:
    """What an experiment found along its positions or steps, from 1 on, named by the question's own words."""

    def word(part: str) -> str:
        return sentence(f"questions.{key}_{part}", language)

    names = {name: word(f"line_{name}") for name in lines}
    numbers = range(1, max(map(len, lines.values())) + 1)
    return chart_html(
        Chart(
            key=f"question-{key}-lines",
            title=word("lines"),
            description=SEPARATOR.join((word("lines"), *names.values())),
            x_title=word("x"),
            y_title=word("y"),
            series=[
                Series(
                    name=names[name],
                    points=list(zip(numbers, heights, strict=True)),
                    colour=_LINES[name][0],
                    looks="points",
                    dash=_LINES[name][1],
                )
                for name, heights in lines.items()
            ],
            table_title=sentence("questions.curve_table", language),
            heads=[word("x"), *names.values()],
            rows=[[f"{k:,}", *map(write, heights)] for k, *heights in zip(numbers, *lines.values(), strict=True)],
        )
    )


def scale_for(values: Sequence[float], width: float) -> Scale:
    """A scale that shows all values above 0 with room around them, a decade wide at least."""
    logs = [math.log10(value) for value in values if value > 0] or [0.0]
    low, high = min(logs), max(logs)
    room = max(0.35, (1 - (high - low)) / 2)
    return Scale(low - room, high + room, width)


def ticks_for(scale: Scale, thousand: int = 1000) -> list[float]:
    """Powers of ten; 2 and 5 times them where the strip is short; fewer where it is long.

    `thousand`: how many of a unit make the next, 1024 for bytes in KiB, MiB, GiB: 1, 10 and 100 of each are marked.
    """
    first, last = math.floor(scale.low), math.ceil(scale.high)
    sizes = (1, 2, 5) if scale.high - scale.low <= _MOST_DECADES_WITH_HALVES else (1,)
    step = max(1, math.ceil((last - first) / 7))
    # In 1024ths the powers lie a little higher than those of ten: one more is tried below.
    powers = [10.0**power * (thousand / 1000) ** (power // 3) for power in range(first - step, last + 1, step)]
    values = [size * power for power in powers for size in sizes]
    # Below the smallest number there is, a power is 0: 5e-324 can be typed as any other.
    return [value for value in values if value and scale.low <= math.log10(value) <= scale.high]


def _drawing(
    ids: str,
    kind: str,
    marks: Sequence[Mark],
    width: float,
    said: tuple[str, str],
    write: Callable[[float], str],
    thousand: int,
) -> str:
    scale = scale_for([mark.value for mark in marks], width)
    outcome = next(mark.value for mark in marks if mark.kind == "outcome")
    ids, (title, description) = escape(ids), (escape(text) for text in said)
    parts = [_zone(scale, outcome, NEAR_FACTOR, "near"), _zone(scale, outcome, CLOSE_FACTOR, "close")]
    parts.append(_line(_SIDE, _LINE, width - _SIDE, _LINE, "tbt-svg-axis"))
    stems = [scale.x(mark.value) for mark in marks if _ROWS[mark.kind] > _LINE]
    for tick in ticks_for(scale, thousand):
        x, text = scale.x(tick), write(tick)
        parts.append(_line(x, _LINE, x, _LINE + 5, "tbt-svg-axis"))
        if all(abs(x - stem) > _HALF_LETTER * len(text) for stem in stems):  # no line runs through a number
            parts.append(_text(x, _LINE + 18, text, width))
    parts += [_mark(scale, mark) for mark in marks]
    return (
        f'<svg class="tbt-svg-{kind}" viewBox="0 0 {width:g} {HEIGHT:g}" role="img" '
        f'aria-labelledby="{ids}-title {ids}-text"><title id="{ids}-title">{title}</title>'
        f'<desc id="{ids}-text">{description}</desc>{"".join(parts)}</svg>'
    )


def _zone(scale: Scale, outcome: float, factor: float, kind: str) -> str:
    left, right = scale.x(outcome / factor), scale.x(outcome * factor)
    place = f'x="{left:.1f}" y="{_LINE - 14:.1f}" width="{right - left:.1f}" height="14"'
    return f'<rect class="tbt-question-{kind}" {place}/>'


def _mark(scale: Scale, mark: Mark) -> str:
    """A triangle on the axis for the prediction, a diamond for the outcome, a hollow ring for what people believe."""
    x, y, row = scale.x(mark.value), _LINE, _ROWS[mark.kind]
    colour = f"var({_COLOURS[mark.kind]})"
    shapes = {
        "said": f'<path d="M{x:.1f} {y:.1f}l-7 -13h14Z" style="fill:{colour}"/>',
        "outcome": f'<path d="M{x:.1f} {y - 9:.1f}l7 9 -7 9 -7 -9Z" style="fill:{colour}"/>',
        "believed": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke-width="2.5" style="stroke:{colour}"/>',
    }
    gap = (y - 14, row + 5) if row < y else (y + 9, row - 11)
    stem = _line(x, gap[0], x, gap[1], "tbt-svg-mark")
    return stem + shapes[mark.kind] + _text(x, row, mark.text, scale.width, "tbt-svg-title")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, width: float, kind: str = "") -> str:
    """Words at a place; near an end they begin or end there, so that none is cut off."""
    anchor, place = "middle", x
    if x < width / 3 and kind:
        anchor, place = "start", max(2.0, x - 7)
    elif x > 2 * width / 3 and kind:
        anchor, place = "end", min(width - 2, x + 7)
    return f'<text x="{place:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
