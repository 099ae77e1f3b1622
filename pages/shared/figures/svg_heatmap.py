"""A table of values as shades: rows and columns by name, the value in every cell that has the room for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pages.shared.figures.svg import NARROW, WIDE
from pages.shared.figures.svg_frame import MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, svg_text

MOST_ROW_PIXELS, MOST_PIXELS = 26.0, 560.0
LEAST_TEXT_PIXELS, LETTER_PIXELS = 15.0, 7.0
PALEST_PERCENT, DARKEST_PERCENT = 6, 52
"""Of the colour in a cell: the page's ink stays readable on the darkest, in light and dark."""
_FOOT = 36.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """What it shows. A cell's shade is its share of the largest value; one without a value is left open.

    Attributes:
        rows, columns: their values, in order.
        values: by (row, column); none below 0.
        row_title, column_title: with their units.
        write: a value as text.
    """

    key: str
    title: str
    description: str
    rows: Sequence[int]
    columns: Sequence[int]
    values: Mapping[tuple[int, int], float]
    row_title: str
    column_title: str
    colour: str
    write: Callable[[float], str]


def heatmap_html(heatmap: Heatmap) -> str:
    """The drawing for wide and for narrow rooms, as a figure like a chart's."""
    drawings = "".join(_drawing(heatmap, kind, width) for kind, width in (("wide", WIDE[0]), ("narrow", NARROW[0])))
    return (
        f'<figure class="tbt-svg" data-chart="{escape(heatmap.key)}"><figcaption><b>{escape(heatmap.title)}</b>'
        f"</figcaption>{drawings}</figure>"
    )


def _drawing(heatmap: Heatmap, kind: str, width: float) -> str:
    n_rows, n_columns = max(1, len(heatmap.rows)), max(1, len(heatmap.columns))
    wide, high = (width - MARGIN_LEFT - MARGIN_RIGHT) / n_columns, min(MOST_ROW_PIXELS, MOST_PIXELS / n_rows)
    height = MARGIN_TOP + n_rows * high + _FOOT
    bottom = height - _FOOT
    parts = [svg_text(4, 12, heatmap.row_title, "start", "tbt-svg-title")]
    parts.append(svg_text(width - MARGIN_RIGHT, height - 4, heatmap.column_title, "end", "tbt-svg-title"))
    for place in _named(len(heatmap.rows), high, LEAST_TEXT_PIXELS):
        middle = MARGIN_TOP + (place + 0.5) * high + 4
        parts.append(svg_text(MARGIN_LEFT - 6, middle, f"{heatmap.rows[place]:,}", "end"))
    longest = max((len(f"{column:,}") for column in heatmap.columns), default=1)
    for place in _named(len(heatmap.columns), wide, LETTER_PIXELS * (longest + 1)):
        parts.append(svg_text(MARGIN_LEFT + (place + 0.5) * wide, bottom + 16, f"{heatmap.columns[place]:,}", "middle"))
    parts += [_cell(heatmap, row, column, wide, high) for row in range(n_rows) for column in range(n_columns)]
    ids = f"{escape(heatmap.key)}-{kind}"
    return (
        f'<svg class="tbt-svg-{kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{ids}-title {ids}-text"><title id="{ids}-title">{escape(heatmap.title)}</title>'
        f'<desc id="{ids}-text">{escape(heatmap.description)}</desc>{"".join(parts)}</svg>'
    )


def _cell(heatmap: Heatmap, row: int, column: int, wide: float, high: float) -> str:
    x, y = MARGIN_LEFT + column * wide, MARGIN_TOP + row * high
    value = None
    if row < len(heatmap.rows) and column < len(heatmap.columns):
        value = heatmap.values.get((heatmap.rows[row], heatmap.columns[column]))
    box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{max(1, wide - 2):.1f}" height="{max(1, high - 2):.1f}"'
    if value is None:
        return f'<rect {box} class="tbt-svg-none"/>'
    share = value / (max(heatmap.values.values()) or 1.0)
    percent = PALEST_PERCENT + share * (DARKEST_PERCENT - PALEST_PERCENT)
    fill = f"color-mix(in srgb, var({escape(heatmap.colour)}) {percent:.0f}%, var(--tbt-panel))"
    text = heatmap.write(value)
    has_room = high >= LEAST_TEXT_PIXELS and wide >= LETTER_PIXELS * len(text)
    written = svg_text(x + wide / 2, y + high / 2 + 4, text, "middle", "tbt-svg-title") if has_room else ""
    return f'<rect {box} style="fill:{fill}"/>{written}'


def _named(n_places: int, pixels: float, least: float) -> range:
    """The places whose names have room, from the first on."""
    return range(0, n_places, max(1, round(least / pixels + 0.499)))
