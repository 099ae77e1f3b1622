"""Two pictures of attention over the context: what FLOP a byte tends to, and what a written table of scores costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.estimate.attention_roof import Rises
from pages.shared.figures.chart import INK, Figure, Say, Told, line
from pages.shared.figures.loglog import Frame, apart, corner, dots, framed, level, words

DECODE, PREFILL, WEIGHTS = "var(--tbt-decode)", "var(--tbt-prefill)", "var(--tbt-weights-ink)"
_DASHES = {"mha": "solid", "gqa": "dash", "mqa": "dashdot", "mla": "longdash", "own": "solid"}
HEIGHT = 320


def attention_roofs(rises: Rises, ridge: float, now: int, told: Sequence[Told], say: Say) -> Figure:
    """FLOP a byte of a decode step over the context, kind by kind, with its roof at the right end."""
    values = [value for one in rises.lines for value in (*one.intensity, one.roof)]
    frame = Frame((rises.x[0], rises.x[-1]), (min(values) / 2, max(*values, ridge) * 30), HEIGHT)
    data: list[Figure] = []
    for one in rises.lines:
        is_own = one.name == "own"
        name = say.word(f"kind_{one.name}", model=one.model)
        drawn = line(
            name,
            rises.x,
            one.intensity,
            DECODE if is_own else INK,
            meta=f"{one.name}_flop_per_byte",
            dash=_DASHES[one.name],
        )
        drawn["line"]["width"] = 4 if is_own else 1.8
        data.append(drawn | {"hovertemplate": "n = %{x:,}: %{y:.3g} FLOP/B<extra>%{fullData.name}</extra>"})
    ends = dots([frame.x[1]] * len(rises.lines), [one.roof for one in rises.lines], INK, "triangle-left", 9)
    labels = [(one.roof, f"{say.written(one.roof)} {say.word(f'short_{one.name}')}") for one in rises.lines[:-1]]
    labels.append((ridge, f"<b>{say.word('label_ridge', ridge=say.written(ridge))}</b>"))
    ys = apart([y for y, _ in labels], frame)
    data += [ends, words([frame.x[1]] * len(labels), ys, [f"  {text}" for _, text in labels])]
    data.append(corner(told, frame))
    titles = say.word("axis_context"), say.word("axis_intensity")
    figure = framed(data, frame, titles, "context", now)
    figure["layout"]["shapes"][0]["y1"] = 0.68
    figure["layout"]["shapes"].append(level(ridge, width=2.5))
    figure["layout"]["margin"]["r"] = 76
    return figure


class TableTimes(NamedTuple):
    """Seconds over the prompt's length: all linear layers' FLOP, attention's FLOP, the table's bytes."""

    x: tuple[int, ...]
    linear_s: tuple[float, ...]
    attention_s: tuple[float, ...]
    table_s: tuple[float, ...]


def score_table(times: TableTimes, now: int, told: Sequence[Told], say: Say) -> Figure:
    """Where moving the table overtakes what it serves."""
    lines = (
        ("linear", times.linear_s, WEIGHTS, "solid", 3),
        ("attention_flops", times.attention_s, PREFILL, "dash", 2),
        ("table", times.table_s, INK, "dot", 3),
    )
    values = [value for _, ys, *_ in lines for value in ys]
    frame = Frame((times.x[0], times.x[-1]), (max(min(values), max(values) / 1e9), max(values) * 100), HEIGHT)
    data = []
    for name, ys, colour, dash, width in lines:
        drawn = line(say.word(f"time_{name}"), times.x, ys, colour, meta=f"{name}_s", dash=dash, width=width)
        data.append(drawn | {"hovertemplate": "n = %{x:,}: %{y:.3s}s<extra>%{fullData.name}</extra>"})
    places = [one for one in told if one.sign]
    data.append(
        dots(
            [one.x for one in places],
            [one.y for one in places],
            INK,
            [one.sign for one in places],
            11,
            fill="var(--tbt-panel)",
        )
    )
    data.append(corner(told, frame))
    titles = say.word("axis_prompt"), say.word("axis_seconds")
    figure = framed(data, frame, titles, "context", now)
    figure["layout"]["shapes"][0]["y1"] = 0.68
    figure["layout"]["yaxis"] |= {"tickformat": "~s"}
    return figure
