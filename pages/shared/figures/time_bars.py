"""A decode step as bars of time: what is read, part by part, and below it what is computed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.estimate.roofline import Split
from pages.shared.figures.chart import INK, Figure, Say, fine_end, layout

K, V, WEIGHTS, DECODE = (f"var(--tbt-{name})" for name in ("k", "v", "weights", "decode"))
READ_WIDTH, COMPUTE_WIDTH, GAP = 0.42, 0.2, 0.04
LABEL_ROOM = 1.4
"""The axis reaches so far beyond the longest floor, whose label begins at its end."""


class Step(NamedTuple):
    """A decode step at a context; `band_s` is what was observed for such a floor, None where nothing was."""

    n_tokens: int
    split: Split
    band_s: tuple[float, float] | None


def time_bars(steps: Sequence[Step], is_latent: bool, say: Say) -> Figure:
    """One row a step, the dials' own first. Bars lie at places of their own, so that no stacking moves them."""
    names = [
        say.word("row_now" if place == 0 else "row", n=say.written_count(step.n_tokens))
        for place, step in enumerate(steps)
    ]
    weights = [step.split.weights_s * 1e3 for step in steps]
    kv = [step.split.kv_s * 1e3 for step in steps]
    half = [value if is_latent else value / 2 for value in kv]
    compute = [step.split.compute_s * 1e3 for step in steps]
    bands = [step.band_s or (0.0, 0.0) for step in steps]
    has_band = any(step.band_s for step in steps)
    top = -READ_WIDTH
    data = [
        _bars(say.word("part_weights"), names, weights, [0.0] * len(steps), WEIGHTS, top, READ_WIDTH, "weights_ms"),
        _bars(say.word("part_latents" if is_latent else "part_keys"), names, half, weights, K, top, READ_WIDTH, "k_ms"),
        _bars(
            say.word("part_values"),
            names,
            half,
            [one + other for one, other in zip(weights, half, strict=True)],
            V,
            top,
            READ_WIDTH,
            "v_ms",
        )
        | {"visible": not is_latent},
        _bars(say.word("part_compute"), names, compute, [0.0] * len(steps), DECODE, GAP, COMPUTE_WIDTH, "compute_ms"),
        _bars(
            say.word("part_band"),
            names,
            [(most - least) * 1e3 for least, most in bands],
            [least * 1e3 for least, _ in bands],
            "rgba(0,0,0,0)",
            top + READ_WIDTH / 2 - 0.05,
            0.1,
            "",
        )
        | {"visible": has_band},
    ]
    data[-1]["marker"] = {"color": "rgba(0,0,0,0)", "line": {"color": INK, "width": 1.5}}
    floors = [step.split.floor_s * 1e3 for step in steps]
    labels = [say.word("label_floor", time=f"{say.written(floor)} ms") for floor in floors]
    data.append(
        {
            "type": "scatter",
            "mode": "text",
            # Where the bar ends, and not behind what was observed; below it, where the frame of that does not reach.
            "x": floors,
            "y": names,
            "text": [f" {label}" for label in labels],
            "textposition": "bottom right",
            "textfont": {"color": INK, "size": 12},
            "cliponaxis": False,
            "hoverinfo": "skip",
            "showlegend": False,
            "meta": "",
        }
    )
    end = max(max(floors) * LABEL_ROOM, *(most * 1e3 for _, most in bands))
    own = layout(say.word("axis_time"), "", 0, fine_end(end), 1, "context")
    own |= {"shapes": [], "hovermode": "closest", "height": 96 + 64 * len(steps), "barmode": "overlay"}
    own["margin"] = {"l": 104, "r": 16, "t": 34, "b": 46}
    own["yaxis"] = {"autorange": "reversed", "tickfont": {"color": INK, "size": 13}, "type": "category"}
    own |= {
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "font": {"size": 12, "color": INK}},
    }
    return {"data": data, "layout": own}


def _bars(
    name: str,
    rows: Sequence[str],
    lengths: Sequence[float],
    begins: Sequence[float],
    colour: str,
    offset: float,
    width: float,
    column: str,
) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "visible": True,
        "x": [float(f"{value:.6g}") for value in lengths],
        "base": [float(f"{value:.6g}") for value in begins],
        "y": list(rows),
        "offset": offset,
        "width": width,
        "marker": {"color": colour, "line": {"width": 0}},
        "meta": column,
        "hovertemplate": "%{x:.3g} ms<extra>%{fullData.name}</extra>",
    }
