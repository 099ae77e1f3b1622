"""Pictures whose both axes are logarithmic: frame, words in a corner, labels at the ends of lines, places of the dials.

Places are in data; only here are they turned into decades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pages.shared.figures.chart import INK, MUTED, SIGNS, Figure, Told, layout, short

TELL_PIXELS, LABEL_PIXELS = 20, 16


@dataclass(frozen=True, slots=True)
class Frame:
    """What a picture shows of both axes, and how high its plot is in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: int = 300

    @property
    def decades_a_pixel(self) -> float:
        """Of the vertical axis."""
        return math.log10(self.y[1] / self.y[0]) / self.height

    def share_above(self, y: float) -> float:
        """How far below the top a value lies, as a share of the height."""
        return math.log10(self.y[1] / y) / math.log10(self.y[1] / self.y[0])

    def below(self, top: float, pixels: float) -> float:
        """The value so many pixels below another one."""
        return float(top / 10 ** (pixels * self.decades_a_pixel))


def framed(data: list[Figure], frame: Frame, titles: tuple[str, str], column: str, now: float | None = None) -> Figure:
    """The figure; a dotted line stands where the dials do."""
    own = layout(*titles, now or frame.x[0], 1, 1, column)
    for axis, (least, most) in (("xaxis", frame.x), ("yaxis", frame.y)):
        own[axis] |= {
            "type": "log",
            # A trifle wider: what stands on the edge would not be drawn at all.
            "range": [round(math.log10(least) - 1e-4, 5), round(math.log10(most) + 1e-4, 5)],
            "dtick": 1,
            "tickformat": "~s" if axis == "xaxis" else ",~r",
        }
    own["shapes"] = own["shapes"] if now is not None else []
    own |= {"height": frame.height + 84, "hovermode": "closest", "margin": {"l": 60, "r": 14, "t": 32, "b": 50}}
    own |= {
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.01,
            "yanchor": "bottom",
            "font": {"size": 12, "color": INK},
            "itemclick": False,
            "itemdoubleclick": False,
        },
    }
    return {"data": data, "layout": own}


def level(y: float, colour: str = INK, dash: str = "solid", width: float = 1.5) -> Figure:
    """A line across the picture."""
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": short(y),
        "y1": short(y),
        "line": {"color": colour, "width": width, "dash": dash},
        "layer": "below",
    }


def upright(x: float, most: float = 1.0) -> Figure:
    """A dotted line from the axis up to a share of the height."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": short(x),
        "x1": short(x),
        "y0": 0,
        "y1": most,
        "line": {"color": MUTED, "width": 1.5, "dash": "dot"},
        "layer": "below",
    }


def corner(told: Sequence[Told], frame: Frame) -> Figure:
    """Sentences in the upper left corner, each behind the sign of its place."""
    at = frame.x[0] * (frame.x[1] / frame.x[0]) ** 0.012
    ys = [frame.below(frame.y[1], TELL_PIXELS * (place + 0.6)) for place in range(len(told))]
    texts = [f"{SIGNS.get(one.sign, one.sign)} {one.text}".strip() for one in told]
    return words([at] * len(told), ys, texts, 13)


def words(
    x: Sequence[float], y: Sequence[float], texts: Sequence[str], size: int = 12, where: str = "middle right"
) -> Figure:
    """Texts at places."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": [short(value) for value in x],
        "y": [short(value) for value in y],
        "text": list(texts),
        "textposition": where,
        "textfont": {"color": INK, "size": size},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "",
    }


def dots(
    x: Sequence[float], y: Sequence[float], colour: str, symbols: str | Sequence[str], size: float, **looks: Any
) -> Figure:
    """Marks at places; hollow ones have the panel's colour inside."""
    fill = looks.pop("fill", colour)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [short(value) for value in x],
        "y": [short(value) for value in y],
        "visible": True,
        "marker": {
            "size": size,
            "symbol": symbols if isinstance(symbols, str) else list(symbols),
            "color": fill,
            "opacity": 1,
            "line": {"color": colour, "width": 2},
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "",
        **looks,
    }


def apart(ys: Sequence[float], frame: Frame) -> list[float]:
    """The places moved up where labels would lie on each other; their order stays."""
    moved = list(ys)
    order = sorted(range(len(ys)), key=ys.__getitem__)
    step = 10 ** (LABEL_PIXELS * frame.decades_a_pixel)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] * step)
    return moved
