"""What the charts have in common: quiet axes, lines labelled at their ends, the dials' place, marked crossings.

A figure is plotly's own data and layout as plain values, so that a live route can send the part that changes. Colours
are CSS variables, which the browser resolves by the page's theme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.words import sentence

Figure = dict[str, Any]
INK, MUTED, LINE = "var(--tbt-ink)", "var(--tbt-muted)", "var(--tbt-line)"


@dataclass(frozen=True, slots=True)
class Say:
    """How a figure speaks: the reader's language, and numbers in the reader's units."""

    language: str
    bytes_unit: str
    bytes_divisor: int
    written_bytes: Callable[[int], str]
    written_count: Callable[[int], str]
    written_flops: Callable[[float], str]

    def word(self, key: str, **values: object) -> str:
        """A word of the estimate pages."""
        return sentence(f"costs.{key}", self.language, **values)


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked place: where the dials stand, or where two lines meet."""

    x: float
    y: float
    text: str
    is_now: bool = False


def line(name: str, x: Sequence[float], y: Sequence[float], colour: str, **looks: Any) -> Figure:
    """A line; `meta` is its column's name in the downloaded table."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "visible": looks.pop("visible", True),  # said always: what was hidden must be able to come back
        "meta": looks.pop("meta", name),
        "x": list(x),
        "y": [_short(value) for value in y],
        "line": {"color": colour, "width": looks.pop("width", 2), "dash": looks.pop("dash", "solid")},
        "hovertemplate": "%{y:.4g}<extra>%{fullData.name}</extra>",
        **looks,
    }


def marks(places: Sequence[Mark], x_most: float, y_most: float) -> Figure:
    """Marked places with their words, above everything else; words keep to the inside of the axes' ends."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [mark.x for mark in places],
        "y": [_short(mark.y) for mark in places],
        "text": [mark.text for mark in places],
        "textposition": [_beside(mark, mark.x / x_most, mark.y / y_most) for mark in places],
        "textfont": {"color": INK, "size": 13},
        "marker": {
            "size": [12 if mark.is_now else 9 for mark in places],
            "color": "var(--tbt-panel)",
            "line": {"color": INK, "width": 2.5},
            "symbol": ["circle" if mark.is_now else "diamond" for mark in places],
            "opacity": 1,  # with sizes in a list plotly would take 0.7
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
        "meta": "",
    }


def _beside(mark: Mark, x_share: float, y_share: float) -> str:
    """Above for the dials' place, else below where there is room; towards the middle of the chart."""
    vertical = "top" if mark.is_now or y_share < 0.14 else "bottom"
    return f"{vertical} {'right' if x_share < 0.6 else 'left'}"


def labels(ends: Sequence[tuple[str, float, float]]) -> Figure:
    """The names of lines at their ends: (name, x, y)."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": [x for _, x, _ in ends],
        "y": [_short(y) for _, _, y in ends],
        "text": [name for name, _, _ in ends],
        "textposition": "top left",
        "textfont": {"color": INK, "size": 13},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "meta": "",
    }


def layout(x_title: str, y_title: str, now: float, x_most: float, y_most: float, x_column: str) -> Figure:
    """Axes from 0 to round ends that stand still while little changes, and a line where the dials stand."""
    axis = {"gridcolor": LINE, "zeroline": False, "linecolor": LINE, "tickfont": {"color": MUTED, "size": 12}}
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 64, "r": 18, "t": 18, "b": 48},
        "height": 330,
        "showlegend": False,
        "hovermode": "x",
        "meta": {"x": x_column},
        "xaxis": {**axis, "title": {"text": x_title, "font": {"size": 13}}, "type": "linear", "range": [0, x_most]},
        "yaxis": {**axis, "title": {"text": y_title, "font": {"size": 13}}, "type": "linear", "range": [0, y_most]},
        "shapes": [
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": now,
                "x1": now,
                "y0": 0,
                "y1": 1,
                "line": {"color": MUTED, "width": 1, "dash": "dot"},
                "layer": "below",
            }
        ],
    }


def round_end(value: float) -> float:
    """The next of 1, 2, 5, 10, … that leaves a tenth of room above a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value * 1.1))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value * 1.1)


def live_part(figure: Figure) -> Figure:
    """What a change of the dials changes: the numbers of each trace, the marks, the ends of the axes."""
    moving = ("x", "y", "text", "textposition", "marker", "visible", "customdata", "textfont")
    own = figure["layout"]
    return {
        "data": [{name: trace[name] for name in moving if name in trace} for trace in figure["data"]],
        "layout": {
            "shapes": own.get("shapes", []),
            **{axis: {"range": own[axis]["range"]} for axis in ("xaxis", "yaxis") if "range" in own.get(axis, {})},
        },
    }


def _short(value: float) -> float:
    """Six significant digits: what a screen can show, at half the bytes."""
    return float(f"{value:.6g}")
