"""The roofline: FLOP a second against FLOP a byte, both phases as points under the roof of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from core.estimate.roofline import Group, Placed, Roof
from pages.shared.figures.chart import INK, Figure, Say, Told, line
from pages.shared.figures.loglog import Frame, corner, dots, framed, upright, words

if TYPE_CHECKING:
    from core.lab.roofs.steps import MeasuredStep

PREFILL, DECODE, PANEL = "var(--tbt-prefill)", "var(--tbt-decode)", "var(--tbt-panel)"
COLOURS = {"prefill": PREFILL, "recompute": PREFILL, "decode": DECODE}
# What a group of operators is drawn as.
SYMBOLS = {"projection": "square", "attention": "diamond", "head": "triangle-up"}
HEIGHT = 330


class Trail(NamedTuple):
    """Where a phase goes as one number changes: "decode_batch", "decode_context", "prefill_context"."""

    name: str
    passes: tuple[Placed, ...]


def roofline(
    roof: Roof, decode: Placed, prefill: Placed, trails: Sequence[Trail], told: Sequence[Told], device: str, say: Say
) -> Figure:
    """Both phases at the dials, where they go, and the operators that they are made of."""
    right = max(3e4, roof.ridge * 30, prefill.intensity * 3, decode.intensity * 3)
    left = min(0.4, decode.intensity / 2, *(one.intensity / 2 for one in trails[0].passes))
    frame = Frame((left, right), (roof.reachable(left), roof.peak_flops * 12), HEIGHT)
    edges = [left, roof.ridge, right]
    data = [line(device, edges, [roof.reachable(x) for x in edges], INK, width=3, meta="")]
    for trail in trails:
        looks = {"dash": "dot" if trail.name == "decode_context" else "solid", "opacity": 0.75, "meta": ""}
        colour = COLOURS[trail.name.partition("_")[0]]
        x, y = [one.intensity for one in trail.passes], [one.flops_per_s for one in trail.passes]
        data.append(line(say.word(f"trail_{trail.name}"), x, y, colour, **looks))
    for phase, made in (("decode", decode), ("prefill", prefill)):
        data.append(_operators(made.groups, phase, roof, say))
    for phase, made in (("decode", decode), ("prefill", prefill)):
        data.append(dots([made.intensity], [made.flops_per_s], COLOURS[phase], "circle", 16))
    places = [frame.below(decode.flops_per_s, 18), frame.below(prefill.flops_per_s, 18)]
    named = [f"<b>{say.word(phase)}</b>" for phase in ("decode", "prefill")]
    data.append(words([decode.intensity * 1.15, prefill.intensity], places, named, where="middle right"))
    data[-1]["textposition"] = ["middle right", "middle center"]
    low = [frame.y[0] * 10 ** (12 * frame.decades_a_pixel)]
    data.append(words([roof.ridge * 1.06], low, [say.word("label_ridge", ridge=say.written(roof.ridge))]))
    data.append(corner(told, frame))
    figure = framed(data, frame, (say.word("axis_intensity"), say.word("axis_speed")), "flop_per_byte")
    figure["layout"]["shapes"] = [upright(roof.ridge, 1 - frame.share_above(roof.peak_flops))]
    figure["layout"]["yaxis"] |= {"tickformat": "~s"}
    return figure


def measured(steps: Sequence[MeasuredStep], say: Say) -> Figure:
    """Steps on the clock, as crosses; a trace that no dial moves."""
    return dots(
        [one.intensity for one in steps],
        [one.flops_per_s for one in steps],
        INK,
        "x-thin",
        9,
        name=say.word("line_measured"),
        showlegend=True,
        marker={
            "size": 9,
            "symbol": "x-thin",
            "color": [COLOURS[one.phase] for one in steps],
            "line": {"color": [COLOURS[one.phase] for one in steps], "width": 2},
        },
    )


def _operators(groups: Sequence[Group], phase: str, roof: Roof, say: Say) -> Figure:
    """The kinds of operators as small marks on the roof."""
    xs = [one.intensity for one in groups]
    made = dots(
        xs, [roof.reachable(x) for x in xs], COLOURS[phase], [SYMBOLS[one.name] for one in groups], 9, fill=PANEL
    )
    made |= {"customdata": [say.word(f"operator_{one.name}") for one in groups]}
    return made | {"hoverinfo": "all", "hovertemplate": "%{customdata}: %{x:.3g} FLOP/B<extra></extra>"}
