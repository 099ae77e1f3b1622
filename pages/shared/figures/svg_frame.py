"""A drawing's frame: where a value lies, round ticks, and lines and texts at places."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 56.0, 12.0, 26.0, 40.0
MOST_TICKS = 5


class Frame(NamedTuple):
    """A drawing's size in pixels and the ends of its axes; `right` is what is left free there, for labels."""

    width: float
    height: float
    x_first: float
    x_last: float
    y_most: float
    y_least: float = 0.0
    right: float = MARGIN_RIGHT

    def x(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.x_first) / (self.x_last - self.x_first)
        return MARGIN_LEFT + share * (self.width - MARGIN_LEFT - self.right)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        room = self.height - MARGIN_TOP - MARGIN_BOTTOM
        return MARGIN_TOP + room * (self.y_most - value) / (self.y_most - self.y_least)


def ticks(most: float, *, first: float = 0.0, whole: bool = False) -> list[float]:
    """Round numbers from `first` to `most`, at most six: steps of 1, 2 or 5 times a power of ten."""
    span = most - first
    if span <= 0:
        return [first]
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(size * power for size in (1, 2, 5, 10) if span / (size * power) <= MOST_TICKS * (1 + 1e-9))
    if whole:
        step = max(1.0, step)
    begin = math.ceil(first / step - 1e-9)
    return [float(f"{step * k:.12g}") for k in range(begin, math.floor(most / step + 1e-9) + 1)]


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A line; `kind` is its class in the style sheet."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def svg_text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    """A text that begins, ends or has its middle at a place."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
