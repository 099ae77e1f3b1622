"""The lab's charts: a step's time against n with what was predicted and what the formulas say, residuals, KV bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.lab.sweep.plan import Cell
from pages.shared.figures.chart import INK, MUTED, Figure, fine_end, layout

DECODE, OTHER, K, V = (f"var(--tbt-{name})" for name in ("decode", "weights-ink", "k", "v"))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "pentagon", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MS = 1e3


@dataclass(frozen=True, slots=True)
class Line:
    """The points of one batch in one sweep, n rising, and the curves that are drawn with them.

    `curves`: name → seconds at each n of `cells`. `is_other`: of another sweep than the one that is looked at.
    """

    name: str
    cells: Sequence[Cell]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    is_other: bool = False


def latency_figure(lines: Sequence[Line], predicted: Sequence[tuple[float, float]], words: Mapping[str, str]) -> Figure:
    """Medians with quartiles, curves, and what was predicted: (n, seconds). `words`: x, y, predicted, and of curves."""
    data = []
    for place, line in enumerate(lines):
        colour, symbol = (OTHER if line.is_other else DECODE), SYMBOLS[place % len(SYMBOLS)]
        x = [cell.context for cell in line.cells]
        for name, seconds in line.curves.items():
            data.append(_curve(words[name], x, seconds, colour if name == "fit" else MUTED, place, name))
        points = _points(line, x, colour, symbol + ("-open" if line.is_other else ""))
        if line.is_other:
            points |= {
                "mode": "lines+markers",
                "line": {"width": 1, "dash": DASHES[place % len(DASHES)], "color": colour},
            }
        data.append(points)
    if predicted:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": words["predicted"],
                "x": [n for n, _ in predicted],
                "y": [_short(seconds * MS) for _, seconds in predicted],
                "marker": {"symbol": "star-open", "size": 13, "color": INK, "line": {"width": 2}},
                "meta": "predicted_ms",
                "hovertemplate": "n=%{x}: %{y:.4g} ms<extra>%{fullData.name}</extra>",
            }
        )
    most_x = max((cell.context for line in lines for cell in line.cells), default=1)
    tops = [cell.third_quartile_s for line in lines for cell in line.cells] + [seconds for _, seconds in predicted]
    return _whole(data, words["x"], words["y"], most_x, (0, fine_end(1.05 * MS * max(tops, default=0.001))))


def residual_figure(groups: Sequence[tuple[str, Sequence[tuple[int, float]]]], words: Mapping[str, str]) -> Figure:
    """Measured less fitted seconds against n, batch by batch: (name, (n, seconds) …)."""
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [n for n, _ in points],
            "y": [_short(seconds * MS) for _, seconds in points],
            "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9, "color": DECODE},
            "meta": f"residual_ms_{place}",
            "hovertemplate": "n=%{x}: %{y:.3g} ms<extra>%{fullData.name}</extra>",
        }
        for place, (name, points) in enumerate(groups)
    ]
    every = [point for _, points in groups for point in points]
    most = fine_end(1.1 * MS * max((abs(seconds) for _, seconds in every), default=0.001))
    figure = _whole(data, words["x"], words["y"], max((n for n, _ in every), default=1), (-most, most))
    figure["layout"]["shapes"] = [
        {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": {"color": MUTED}}
    ]
    figure["layout"]["height"] = 300
    return figure


def kv_figure(lines: Sequence[Line], words: Mapping[str, str], unit_bytes: int) -> Figure:
    """M_KV by formula as a line through what the tensors take, batch by batch."""
    data: list[Figure] = []
    for place, line in enumerate(lines):
        x = [cell.context for cell in line.cells]
        rows = [cell.row for cell in line.cells]
        formula = [row.kv_bytes_formula / unit_bytes for row in rows]
        measured = [row.kv_bytes_measured / unit_bytes for row in rows]
        name = f"{line.name} · {words['formula']}"
        data.append(_trace("lines", name, x, formula, line={"color": V, "dash": DASHES[place % len(DASHES)]}))
        marker = {"symbol": f"{SYMBOLS[place % len(SYMBOLS)]}-open", "size": 10, "color": K, "line": {"width": 2}}
        data.append(_trace("markers", f"{line.name} · {words['tensors']}", x, measured, marker=marker))
    most_x = max((cell.context for line in lines for cell in line.cells), default=1)
    most_y = max((cell.row.kv_bytes_formula for line in lines for cell in line.cells), default=1) / unit_bytes
    return _whole(data, words["x"], words["y"], most_x, (0, fine_end(1.05 * most_y)))


def _points(line: Line, x: Sequence[int], colour: str, symbol: str) -> Figure:
    middle = [cell.median_s * MS for cell in line.cells]
    return _trace(
        "markers",
        line.name,
        x,
        middle,
        marker={"symbol": symbol, "size": 9, "color": colour, "line": {"width": 1.5}},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_short(cell.third_quartile_s * MS - y) for cell, y in zip(line.cells, middle, strict=True)],
            "arrayminus": [_short(y - cell.first_quartile_s * MS) for cell, y in zip(line.cells, middle, strict=True)],
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        },
    )


def _curve(name: str, x: Sequence[int], seconds: Sequence[float], colour: str, place: int, kind: str) -> Figure:
    dash = {"bytes": "dot", "flops": "dashdot"}.get(kind, DASHES[place % len(DASHES)])
    drawn = _trace(
        "lines", name, x, [value * MS for value in seconds], line={"color": colour, "width": 2, "dash": dash}
    )
    # One entry of the key for all batches of a kind: the points say which batch.
    return drawn | {"legendgroup": kind, "showlegend": place == 0}


def _trace(mode: str, name: str, x: Sequence[float], y: Sequence[float], **looks: Any) -> Figure:
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": list(x),
        "y": [_short(value) for value in y],
        "meta": name,
        "hovertemplate": "n=%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
        **looks,
    }


def _whole(data: list[Figure], x: str, y: str, most_x: float, ends: tuple[float, float]) -> Figure:
    own = layout(x, y, 0, fine_end(1.03 * most_x), ends[1], "context")
    own["yaxis"]["range"] = list(ends)
    own |= {
        "shapes": [],
        "showlegend": True,
        "hovermode": "closest",
        "height": 400,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12, "color": INK},
        },
    }
    return {"data": data, "layout": own}


def _short(value: float) -> float:
    return float(f"{value:.6g}")
