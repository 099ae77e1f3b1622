"""The charts of compute against context, of memory, and of experts: stacks of what adds up, and the chapter's line.

What matters at a glance is written into the empty corner above the curves, each line behind the sign that marks its
place; so it can be read without pointing, and no label ever lies on another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from core.estimate.curves import Curves
from pages.shared.figures.chart import INK, MUTED, Figure, Say, Told, line, told_figure
from pages.shared.figures.costs import WEIGHTS, K, V

ATTENTION = "var(--tbt-attention)"


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
    return told_figure(
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
    figure = told_figure(data, placed, titles, curves, resident[-1], "batch")
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
    figure = told_figure([*bands, chapter], told, (say.word("axis_context"), y_title), curves, total)
    figure["layout"]["yaxis"] |= {"tickformat": "~s"}
    return figure
