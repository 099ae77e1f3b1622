"""Marks of measured points: shapes that are told apart without colour, bars of their spread, labels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Shape = Literal["circle", "square", "triangle", "diamond", "nabla", "plus", "cross", "hexagon"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
LABEL_PIXELS = 13.0
"""From one label's line to the next."""
_CAP = 3.2
_OUTLINES = {
    "square": "M-3.4 -3.4h6.8v6.8h-6.8Z",
    "triangle": "M0 -4.4L4.2 3.2H-4.2Z",
    "diamond": "M0 -4.8L4.4 0L0 4.8L-4.4 0Z",
    "nabla": "M0 4.4L4.2 -3.2H-4.2Z",
    "plus": "M-1.4 -4.4h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3Z",
    "cross": "M-4.2 -2.4L-2.4 -4.2L0 -1.8L2.4 -4.2L4.2 -2.4L1.8 0L4.2 2.4L2.4 4.2L0 1.8L-2.4 4.2L-4.2 2.4L-1.8 0Z",
    "hexagon": "M-4.2 0L-2.1 -3.7H2.1L4.2 0L2.1 3.7H-2.1Z",
    "circle": "M-3.8 0a3.8 3.8 0 1 0 7.6 0a3.8 3.8 0 1 0 -7.6 0Z",
}


def shape_svg(shape: Shape, x: float, y: float, colour: str, *, hollow: bool = False) -> str:
    """One mark around a place, of a colour as CSS writes it; a hollow one shows what lies below it."""
    paint = f"fill:none;stroke:{colour}" if hollow else f"fill:{colour}"
    width = ' stroke-width="1.6"' if hollow else ""
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{_OUTLINES[shape]}" style="{paint}"{width}/>'


def spread_svg(x: float, low: float, high: float, colour: str) -> str:
    """A bar with two ends from one height to another, in pixels from the top."""
    ends = f"M{x - _CAP:.1f} {low:.1f}h{2 * _CAP:.1f}M{x - _CAP:.1f} {high:.1f}h{2 * _CAP:.1f}"
    return f'<path d="M{x:.1f} {low:.1f}V{high:.1f}{ends}" fill="none" style="stroke:{colour}" stroke-width="1.2"/>'


def apart(heights: Sequence[float], least: float = LABEL_PIXELS) -> list[float]:
    """Heights in the given order, moved as little as keeps each `least` below the one above it.

    Those that would touch share the room around their middle.
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    groups: list[list[float]] = []  # wanted tops of their first, as if each stood `least` below the one before
    for rank, index in enumerate(order):
        groups.append([heights[index] - rank * least])
        while len(groups) > 1 and _middle(groups[-2]) > _middle(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    tops = [_middle(group) for group in groups for _ in group]
    placed = [0.0] * len(heights)
    for rank, (index, top) in enumerate(zip(order, tops, strict=True)):
        placed[index] = top + rank * least
    return placed


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values)
