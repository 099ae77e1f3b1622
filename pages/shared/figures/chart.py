"""What the charts have in common: quiet axes, lines labelled at their ends, the dials' place, marked crossings.

A figure is plotly's own data and layout as plain values, so that a live route can send the part that changes. Colours
are CSS variables, which the browser resolves by the page's theme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.estimate.curves import Curves
from core.words import sentence

Figure = dict[str, Any]
INK, MUTED, LINE = "var(--tbt-ink)", "var(--tbt-muted)", "var(--tbt-line)"

SIGNS = {"circle": "○", "diamond": "◇", "square": "□", "": "– –"}
HEIGHT, NOTE_PIXELS, PLOT_PIXELS = 380, 19, 280
_LEGEND = {
    "orientation": "h",
    "traceorder": "normal",
    "x": 0,
    "xanchor": "left",
    "y": 1.02,
    "yanchor": "bottom",
    "font": {"size": 12, "color": INK},
    "itemclick": False,
    "itemdoubleclick": False,
}


@dataclass(frozen=True, slots=True)
class Say:
    """How a figure speaks: the reader's language, and numbers in the reader's units."""

    language: str
    bytes_unit: str
    bytes_divisor: int
    written_bytes: Callable[[int], str]
    written_count: Callable[[int], str]
    written_flops: Callable[[float], str]
    written: Callable[[float], str]
    area: str = "costs"

    def word(self, key: str, **values: object) -> str:
        """A word of the estimate pages, of the figures' own area."""
        return sentence(f"{self.area}.{key}", self.language, **values)


@dataclass(frozen=True, slots=True)
class Told:
    """A line in the corner: the sign of its place, the words, and the place; a sign of "" marks none."""

    sign: str
    text: str
    x: float = 0
    y: float = 0


def line(name: str, x: Sequence[float], y: Sequence[float], colour: str, **looks: Any) -> Figure:
    """A line; `meta` is its column's name in the downloaded table."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "visible": looks.pop("visible", True),  # said always: what was hidden must be able to come back
        "meta": looks.pop("meta", name),
        "x": list(x),
        "y": [short(value) for value in y],
        "line": {"color": colour, "width": looks.pop("width", 2), "dash": looks.pop("dash", "solid")},
        "hovertemplate": "%{y:.4g}<extra>%{fullData.name}</extra>",
        **looks,
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


def told_figure(
    data: list[Figure],
    told: Sequence[Told],
    titles: tuple[str, str],
    curves: Curves,
    most: float,
    column: str = "context",
) -> Figure:
    """The lines with what is told about them, and room for that above the highest."""
    y_most = fine_end(most / (1 - NOTE_PIXELS * (len(told) + 0.5) / PLOT_PIXELS))
    step = y_most * NOTE_PIXELS / PLOT_PIXELS
    corner = {
        "type": "scatter",
        "mode": "text",
        "x": [curves.x[0]] * len(told),
        "y": [float(f"{y_most - step * (row + 0.7):.6g}") for row in range(len(told))],
        "text": [f"{SIGNS[one.sign]} {one.text}" for one in told],
        "textposition": "middle right",
        "textfont": {"color": INK, "size": 13},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "meta": "",
    }
    places = [one for one in told if one.sign]
    marked = {
        "type": "scatter",
        "mode": "markers",
        "x": [one.x for one in places],
        "y": [float(f"{one.y:.6g}") for one in places],
        "marker": {
            "size": [12 if one.sign == "circle" else 10 for one in places],
            "symbol": [one.sign for one in places],
            "color": "var(--tbt-panel)",
            "opacity": 1,
            "line": {"color": INK, "width": 2.5},
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
        "meta": "",
    }
    own = layout(*titles, curves.now, curves.x[-1], y_most, column)
    # Not through the words in the corner: up to the marked place only.
    own["shapes"][0]["y1"] = told[0].y / y_most
    own |= {"showlegend": True, "legend": _LEGEND, "height": HEIGHT, "margin": {"l": 74, "r": 18, "t": 28, "b": 48}}
    return {"data": [*data, *({**trace, "showlegend": False} for trace in (corner, marked))], "layout": own}


def fine_end(value: float) -> float:
    """The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, … that is not below a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value)


def live_part(figure: Figure) -> Figure:
    """What a change of the dials changes: the numbers of each trace, the marks, the ends of the axes."""
    moving = ("x", "y", "base", "text", "textposition", "marker", "visible", "customdata", "textfont")
    own = figure["layout"]
    return {
        "data": [{name: trace[name] for name in moving if name in trace} for trace in figure["data"]],
        "layout": {
            "shapes": own.get("shapes", []),
            **{axis: {"range": own[axis]["range"]} for axis in ("xaxis", "yaxis") if "range" in own.get(axis, {})},
        },
    }


def short(value: float) -> float:
    """Six significant digits: what a screen can show, at half the bytes."""
    return float(f"{value:.6g}")
