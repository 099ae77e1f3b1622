"""The picture of batching: FLOP a byte against the batch, context by context, under the card's ridge.

Every curve begins at one request and bends to its own ceiling; where the card is full it ends in a ring and goes on
dashed, as it would with endless memory. What lies above the ridge and can be reached is tinted.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.estimate.batch_picture import BatchCurve, BatchPicture
from pages.shared.figures.chart import INK, MUTED, Figure, Say, Told, line, short
from pages.shared.figures.loglog import Frame, apart, corner, dots, framed, level, words

DECODE, PANEL = "var(--tbt-decode)", "var(--tbt-panel)"
HEIGHT = 470


def batching(picture: BatchPicture, told: Sequence[Told], say: Say) -> Figure:
    """The curves; the last one is that of the dials."""
    highest = max(picture.ridge * 12, max(curve.ceiling for curve in picture.curves) * 1.6)
    lowest = min(curve.intensity[0] for curve in picture.curves)
    frame = Frame((1, picture.x[-1]), (lowest / 1.6, highest), HEIGHT)
    data = [_reached(picture, frame, say)]
    for place, curve in enumerate(picture.curves):
        data += _curve(picture, curve, place == len(picture.curves) - 1, say)
    ends = [curve.full for curve in picture.curves if curve.full is not None and 1 <= curve.full[0] <= frame.x[1]]
    rings = dots([x for x, _ in ends], [y for _, y in ends], INK, "circle", 9, fill=PANEL)
    now = dots([picture.now[0]], [picture.now[1]], DECODE, "circle", 15)
    data += [_front(picture, frame, say), rings | {"name": say.word("line_full"), "showlegend": True}, now]
    data += [
        _labels(picture, frame, say),
        corner(told, frame),
    ]
    figure = framed(data, frame, (say.word("axis_batch"), say.word("axis_intensity")), "batch", picture.now[0])
    figure["layout"]["shapes"].append(level(picture.ridge, width=2.5))
    figure["layout"]["shapes"][0]["y1"] = 0.74
    figure["layout"]["margin"]["r"] = 74
    return figure


def _curve(picture: BatchPicture, curve: BatchCurve, is_own: bool, say: Say) -> list[Figure]:
    """As it would go on for ever, and over that what the card holds."""
    looks = {"width": 4 if is_own else 2, "opacity": 1 if is_own else 0.6, "showlegend": False}
    name = say.word("line_own") if is_own else f"n = {say.written_count(curve.n_tokens)}"
    # The whole curve is for the table that can be downloaded; what is seen of it are its two parts.
    column = f"{'now' if is_own else f'n_{curve.n_tokens}'}_flop_per_byte"
    whole = line(name, picture.x, curve.intensity, DECODE, meta=column, visible="legendonly", showlegend=False)
    most = 0 if curve.is_too_large else float("inf") if curve.full is None else curve.full[0]
    points = [(float(x), y) for x, y in zip(picture.x, curve.intensity, strict=True)]
    at_end = [curve.full] if curve.full is not None and 1 <= most < picture.x[-1] else []
    parts = []
    for inside, dash in (
        ([*(point for point in points if point[0] <= most), *at_end], "solid"),
        ([*at_end, *(point for point in points if point[0] > most)], "dot"),
    ):
        part = line(name, [short(x) for x, _ in inside], [y for _, y in inside], DECODE, meta="", dash=dash, **looks)
        part["hovertemplate"] = "B = %{x:,.4~r}: %{y:.3g} FLOP/B<extra>%{fullData.name}</extra>"
        parts.append(part)
    return [whole, *parts]


def _labels(picture: BatchPicture, frame: Frame, say: Say) -> Figure:
    """At the right end of each curve its context; the dials' own where another has the same is enough."""
    own = picture.curves[-1]
    shown = [one for one in picture.curves[:-1] if not 0.72 < one.n_tokens / own.n_tokens < 1.4] + [own]
    places = [(one.intensity[-1], f"n = {say.written_count(one.n_tokens)}") for one in shown]
    places[-1] = places[-1][0], f"<b>{places[-1][1]}</b>"
    places.append((picture.ridge, f"<b>{say.word('label_ridge', ridge=say.written(picture.ridge))}</b>"))
    ys = apart([min(y, frame.y[1]) for y, _ in places], frame)
    return words([frame.x[1]] * len(places), ys, [f" {text}" for _, text in places])


def _reached(picture: BatchPicture, frame: Frame, say: Say) -> Figure:
    """The region above the ridge that the card's memory allows."""
    edge = [(x, min(y, frame.y[1])) for x, y in picture.reached]
    return {
        **line(say.word("line_reached"), [x for x, _ in edge], [y for _, y in edge], DECODE, width=0, meta=""),
        "fill": "toself",
        "fillcolor": DECODE,
        "opacity": 0.16,
        "hoverinfo": "skip",
        "showlegend": True,
    }


def _front(picture: BatchPicture, frame: Frame, say: Say) -> Figure:
    """Where the card is full, over all contexts."""
    inside = [(x, y) for x, y in picture.front if 1 <= x <= frame.x[1] and y <= frame.y[1]]
    return {
        **line(
            say.word("line_front"),
            [x for x, _ in inside],
            [y for _, y in inside],
            MUTED,
            width=1.5,
            dash="dash",
            meta="",
        ),
        "hoverinfo": "skip",
        "showlegend": False,
    }
