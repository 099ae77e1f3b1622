"""The charts of a layer with experts at work: experts met and seconds against batch, router by router."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from core.estimate.curves import spread
from core.estimate.weights import expected_distinct_experts
from core.lab.routed_record import ROUTERS, RoutedPoint, RoutedResult, RouterName
from core.words import sentence
from pages.shared.figures.chart import INK, MUTED, Figure, fine_end, layout, line
from pages.shared.figures.costs import WEIGHTS

# Router → the sign of its points, and their colour; what was trained without balance stands out.
LOOKS: dict[RouterName, tuple[str, str]] = {
    "uniform": ("circle-open", WEIGHTS),
    "random": ("diamond-open", WEIGHTS),
    "balanced": ("square-open", WEIGHTS),
    "unbalanced": ("triangle-up", INK),
}


def distinct_chart(result: RoutedResult, language: str) -> Figure:
    """Measured means over the curve of uniform choices; whiskers are the interval in which uniform means should lie."""
    x = spread(1, result.batches[-1])
    expected = [float(expected_distinct_experts(result.experts, batch)) for batch in x]
    uneven = [result.expected("unbalanced", batch) for batch in x]
    data = [
        line(_word("curve", language), x, expected, INK, meta="formula", dash="dash"),
        line(_word("expected_unbalanced", language), x, uneven, MUTED, meta="expected_unbalanced", dash="dot"),
        *_measured(result, language, lambda point: point.mean_distinct, "markers"),
    ]
    uniform = next(trace for trace in data if trace["meta"] == "uniform")
    halves = [(interval.high - interval.low) / 2 for interval in map(result.interval, uniform["x"])]
    means = [float(expected_distinct_experts(result.experts, batch)) for batch in uniform["x"]]
    # plotly hangs whiskers on the points; these are to stand around the curve.
    over, under = (
        [max(0.0, sign * (mean - y) + half) for mean, half, y in zip(means, halves, uniform["y"], strict=True)]
        for sign in (1, -1)
    )
    uniform["error_y"] = {"array": over, "arrayminus": under, "symmetric": False, "color": WEIGHTS, "thickness": 1}
    most = result.experts.n_experts * 1.05
    return _figure(data, _word("axis_batch", language), _word("axis_distinct", language), result.batches, most)


def seconds_chart(result: RoutedResult, language: str) -> Figure:
    """The layer's median time in ms, router by router."""
    data = _measured(result, language, lambda point: 1000 * point.median_seconds, "lines+markers")
    most = fine_end(max(max(trace["y"]) for trace in data))
    return _figure(data, _word("axis_batch", language), _word("axis_seconds", language), result.batches, most)


def _measured(result: RoutedResult, language: str, value: Callable[[RoutedPoint], float], mode: str) -> list[Figure]:
    traces = []
    for router in ROUTERS:
        points, (sign, colour) = result.of(router), LOOKS[router]
        name = _word(f"router_{router}", language)
        looks: dict[str, Any] = {"mode": mode, "marker": {"symbol": sign, "size": 9, "color": colour}}
        batches = [point.batch for point in points]
        traces.append(line(name, batches, list(map(value, points)), colour, meta=router, width=1.5, **looks))
    return traces


def _figure(data: list[Figure], x_title: str, y_title: str, batches: Sequence[int], y_most: float) -> Figure:
    """Axes with the batch in powers of two, and the legend above."""
    own = layout(x_title, y_title, batches[0], batches[-1], y_most, "batch")
    ends = [math.log10(batches[0]) - 0.05, math.log10(batches[-1]) + 0.05]
    own["xaxis"] |= {"type": "log", "range": ends, "tickvals": list(batches), "ticktext": [f"{b:,}" for b in batches]}
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"size": 12}}
    margin = {"l": 64, "r": 18, "t": 28, "b": 48}
    own |= {"shapes": [], "showlegend": True, "legend": legend, "height": 400, "margin": margin}
    return {"data": data, "layout": own}


def _word(key: str, language: str) -> str:
    return sentence(f"experts.{key}", language)
