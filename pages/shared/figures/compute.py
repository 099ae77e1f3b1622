"""The charts of compute against context, of memory, and of experts: stacks of what adds up, and the chapter's line.

What matters at a glance is written into the empty corner above the curves, each line behind the sign that marks its
place; so it can be read without pointing, and no label ever lies on another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.estimate.curves import Curves
from pages.shared.figures.chart import INK, MUTED, Figure, Say, layout, line
from pages.shared.figures.costs import WEIGHTS, K, V

ATTENTION = "var(--tbt-attention)"
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
class Told:
    """A line in the corner: the sign of its place, the words, and the place; a sign of "" marks none."""

    sign: str
    text: str
    x: float = 0
    y: float = 0


def decode_compute(curves: Curves, told: Sequence[Told], say: Say) -> Figure:
    """FLOP of a decode step: weights of layers and head below, attention on top of them."""
    hatched = {"shape": "/", "fgcolor": "var(--tbt-panel)", "fgopacity": 1, "size": 6, "solidity": 0.3}
    bands = [
        _band(say.word("line_layers"), curves, "layers", WEIGHTS, fillcolor="var(--tbt-weights)"),
        _band(
            say.word("line_head"),
            curves,
            "head",
            WEIGHTS,
            fillcolor="var(--tbt-weights)",
            fillpattern={**hatched, "bgcolor": "var(--tbt-weights)"},
        ),
        _band(say.word("line_attention"), curves, "attention", INK, fillcolor=ATTENTION, width=1.5),
    ]
    return _compute(curves, bands, told, say.word("axis_decode"), say)


def prefill_compute(curves: Curves, told: Sequence[Told], say: Say) -> Figure:
    """FLOP of a prefill: all weights below, attention on top."""
    bands = [
        _band(say.word("line_weights"), curves, "weights", WEIGHTS, fillcolor="var(--tbt-weights)"),
        _band(say.word("line_attention"), curves, "attention", INK, fillcolor=ATTENTION, width=1.5),
    ]
    return _compute(curves, bands, told, say.word("axis_prefill"), say)


def memory(curves: Curves, capacity: int | None, told: Sequence[Told], is_latent: bool, say: Say) -> Figure:
    """Bytes of weights and cache, one on the other; `capacity` is what the card may hold."""
    unit, column = say.bytes_divisor, say.bytes_unit.lower()

    def band(name: str, key: str, values: Sequence[float], colour: str, **looks: Any) -> Figure:
        scaled = [value / unit for value in values]
        return line(say.word(name), curves.x, scaled, colour, meta=f"{key}_{column}", stackgroup="all", **looks)

    kv, weights = curves.lines["kv"], curves.lines["weights"]
    half = [value / 2 for value in kv]
    bands = [band("line_weights", "weights", weights, WEIGHTS, fillcolor="var(--tbt-weights)")]
    if is_latent:
        bands.append(band("line_latents", "latents", kv, K))
    else:
        bands += [band("line_keys", "keys", half, K), band("line_values", "values", half, V)]
    most = weights[-1] + kv[-1]
    flat = [(capacity or 0) / unit] * len(curves.x)
    card = line(say.word("line_card"), curves.x, flat, INK, meta=f"card_{column}", dash="dot", visible=bool(capacity))
    placed = [Told(one.sign, one.text, one.x, one.y / unit) for one in told]
    return _figure(
        [*bands, card],
        placed,
        (say.word("axis_context"), say.word("axis_memory", unit=say.bytes_unit)),
        curves,
        max(most, capacity or 0) / unit,
    )


def experts(curves: Curves, told: Sequence[Told], say: Say) -> Figure:
    """Bytes of weights that a decode step reads over the batch: from those of one token towards all of them."""
    unit, column = say.bytes_divisor, say.bytes_unit.lower()
    read, resident = ([value / unit for value in curves.lines[name]] for name in ("read", "resident"))
    data = [
        line(say.word("line_read"), curves.x, read, WEIGHTS, meta=f"read_{column}", width=3),
        line(say.word("line_resident"), curves.x, resident, INK, meta=f"resident_{column}", dash="dash"),
        line(say.word("line_one"), curves.x, [read[0]] * len(read), MUTED, meta=f"one_token_{column}", dash="dot"),
    ]
    placed = [Told(one.sign, one.text, one.x, one.y / unit) for one in told]
    titles = say.word("axis_batch"), say.word("axis_read", unit=say.bytes_unit)
    figure = _figure(data, placed, titles, curves, resident[-1], "batch")
    figure["layout"]["xaxis"] |= {"type": "log", "range": [0, math.log10(curves.x[-1])], "dtick": "D2"}
    return figure


def _band(name: str, curves: Curves, key: str, colour: str, **looks: Any) -> Figure:
    """A part of a stack, in FLOP."""
    told = "%{y:.4s}FLOP<extra>%{fullData.name}</extra>"
    return line(
        name, curves.x, curves.lines[key], colour, meta=f"{key}_flop", stackgroup="all", hovertemplate=told, **looks
    )


def _compute(curves: Curves, bands: list[Figure], told: Sequence[Told], y_title: str, say: Say) -> Figure:
    chapter = line(say.word("line_chapter"), curves.x, curves.lines["chapter"], INK, meta="chapter_flop", dash="dash")
    chapter["hovertemplate"] = bands[0]["hovertemplate"]
    total = max(sum(band["y"][-1] for band in bands), curves.lines["chapter"][-1])
    figure = _figure([*bands, chapter], told, (say.word("axis_context"), y_title), curves, total)
    figure["layout"]["yaxis"] |= {"tickformat": "~s"}
    return figure


def _figure(
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
