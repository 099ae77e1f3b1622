"""The planner's picture: what a rank needs, weights and cache end to end, against what it can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from pages.shared.figures.chart import INK, LINE, MUTED, Figure

ROW_PIXELS, HEAD_PIXELS, FRAME_PIXELS = 30, 34, 96
_HEAD = HEAD_PIXELS / ROW_PIXELS


class MemoryBar(NamedTuple):
    """A row: its model and device as they are called, and bytes of one rank.

    `needed` is weights and cache as they are written, `told` what pointing at the row says.
    """

    model: str
    device: str
    weights: int
    kv: int
    capacity: int
    fits: bool
    needed: str
    told: str


def memory_figure(bars: Sequence[MemoryBar], words: Mapping[str, str], *, unit: str, unit_bytes: int) -> Figure:
    """One bar a row, under its model's name; one that is far too long for any device is cut and says how long it is.

    Args:
        words: "weights", "kv", "capacity" and "axis" in the visitor's language.
        unit, unit_bytes: what the axis counts in: GiB.
    """
    places, heads = _places(bars)
    bottom = max(places) + 0.6
    end = _end(bars)
    told = {
        "y": places,
        "customdata": [_plain(bar.told) for bar in bars],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    stacked = [
        _stacked(
            words[name],
            [getattr(bar, name) / unit_bytes if bar.fits != is_over else None for bar in bars],
            colour,
            is_over,
        )
        for name, colour in (("weights", "var(--tbt-weights)"), ("kv", "var(--tbt-k)"))
        for is_over in (False, True)
    ]
    full = {
        "type": "scatter",
        "mode": "markers",
        "name": words["capacity"],
        "x": [bar.capacity / unit_bytes for bar in bars],
        "marker": {"symbol": "line-ns-open", "size": 17, "color": INK, "line": {"width": 2.5, "color": INK}},
    }
    return {
        "data": [{**trace, **told} for trace in (*stacked, full)],
        "layout": {
            "barmode": "stack",
            "height": round(FRAME_PIXELS + ROW_PIXELS * bottom),
            "margin": {"l": 8, "r": 16, "t": 30, "b": 44},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": INK, "size": 13},
            "hoverlabel": {"bgcolor": "var(--tbt-panel)", "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
            "legend": {
                "orientation": "h",
                "traceorder": "normal",
                "xref": "container",
                "x": 0,
                "xanchor": "left",
                "yref": "container",
                "y": 1,
                "yanchor": "top",
                "itemclick": False,
                "itemdoubleclick": False,
            },
            "xaxis": {
                "title": {"text": f"{words['axis']} ({unit})", "font": {"color": MUTED, "size": 12}},
                "range": [0, end / unit_bytes],
                "gridcolor": LINE,
                "zeroline": False,
                "tickfont": {"color": MUTED},
                "fixedrange": True,
            },
            "yaxis": {
                "range": [bottom, -0.4],
                "tickvals": places,
                "ticktext": [_plain(bar.device) for bar in bars],
                "automargin": True,
                "tickfont": {"size": 12},
                "ticks": "outside",
                "ticklen": 6,
                "tickcolor": "rgba(0,0,0,0)",
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
            "annotations": [_label(f"<b>{_plain(model)}</b>", 0, place) for model, place in heads]
            + [
                _label(f"{bar.needed} →", end / unit_bytes, place) | {"xanchor": "right", "bgcolor": "var(--tbt-panel)"}
                for bar, place in zip(bars, places, strict=True)
                if bar.weights + bar.kv > end
            ],
        },
    }


def _end(bars: Sequence[MemoryBar]) -> float:
    """Where the axis ends: a little beyond the longest bar, or beyond the largest capacity if bars are much longer."""
    return 1.05 * min(
        max(max(bar.weights + bar.kv, bar.capacity) for bar in bars), 1.5 * max(bar.capacity for bar in bars)
    )


def _label(text: str, x: float, y: float) -> Figure:
    font = {"color": INK, "size": 13}
    return {"text": text, "x": x, "xref": "x", "xanchor": "left", "y": y, "yref": "y", "showarrow": False, "font": font}


def _stacked(name: str, values: list[float | None], colour: str, is_over: bool) -> Figure:
    """The bars of a part: of those rows that fit, or hatched of those that do not."""
    hatched = {"shape": "/", "fillmode": "overlay", "fgcolor": "var(--tbt-panel)", "fgopacity": 1, "size": 7}
    marker = {"color": colour, "line": {"width": 0}} | ({"pattern": {**hatched, "solidity": 0.25}} if is_over else {})
    return {
        "type": "bar",
        "orientation": "h",
        "width": 0.62,
        "name": name,
        "x": values,
        "marker": marker,
        "showlegend": not is_over,
    }


def _places(bars: Sequence[MemoryBar]) -> tuple[list[float], list[tuple[str, float]]]:
    """Where each bar stands, counted in rows from the top, and where each model's name does."""
    places, heads, at = [], [], 0.0
    for model, members in groupby(bars, key=lambda bar: bar.model):
        heads.append((model, at))
        for _ in members:
            at += 1
            places.append(at)
        at += _HEAD
    return places, heads


def _plain(text: str) -> str:
    """A text of somebody else's as plotly writes it: nothing in it is markup."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text.replace("\n", "<br>")
