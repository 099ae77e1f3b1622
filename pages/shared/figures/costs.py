"""The charts of the estimate pages, from the curves of core."""

from __future__ import annotations

from core.estimate.curves import Curves
from pages.shared.figures.chart import INK, Figure, Say, Told, fine_end, layout, line, told_figure

K, V, WEIGHTS = (f"var(--tbt-{name})" for name in ("k", "v", "weights-ink"))


def kv_memory(curves: Curves, over: str, value_now: int, capacity: int | None, is_latent: bool, say: Say) -> Figure:
    """KV memory over context or batch, keys below values, against the weights and a card's capacity.

    `over` is "context" or "batch", `value_now` the bytes where the dials stand, `capacity` the card's bytes less the
    weights: what is left for the cache.
    """
    unit, x, column = say.bytes_divisor, curves.x, say.bytes_unit.lower()
    kv, weights = ([value / unit for value in curves.lines[name]] for name in ("kv", "weights"))
    room = max(0, capacity or 0) / unit
    keys = say.word("line_latents" if is_latent else "line_keys")
    data = [
        line(keys, x, [value if is_latent else value / 2 for value in kv], K, meta=f"keys_{column}", fill="tozeroy"),
        line(say.word("line_kv"), x, kv, V, meta=f"kv_{column}", fill="tonexty", width=2.5),
        line(say.word("line_weights"), x, weights, WEIGHTS, meta=f"weights_{column}", dash="dash"),
        line(say.word("line_room"), x, [room] * len(x), INK, meta=f"room_{column}", dash="dot", visible=room > 0),
    ]
    told = [Told("circle", say.word("told_kv", value=say.written_bytes(value_now)), curves.now, value_now / unit)]
    for crossing in curves.crossings:
        text = say.word(f"crossing_{crossing.name}_{over}", x=say.written_count(crossing.x))
        told.append(Told("diamond", text, crossing.x, crossing.y / unit))
    titles = say.word(f"axis_{over}"), say.word("axis_kv", unit=say.bytes_unit)
    return told_figure(data, told, titles, curves, max(kv[-1], weights[-1], room), over)


def kv_kinds(kinds: dict[str, int], say: Say) -> Figure:
    """KV memory of one shape with other kinds of attention, side by side."""
    unit, names = say.bytes_divisor, [say.word(f"kind_{name}") for name in kinds]
    values = [value / unit for value in kinds.values()]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": names,
        "text": [say.written_bytes(value) for value in kinds.values()],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": K, "line": {"color": V, "width": 2}},
        "meta": f"kv_{say.bytes_unit.lower()}",
        "hoverinfo": "skip",
    }
    own = layout(say.word("axis_kv", unit=say.bytes_unit), "", 0, fine_end(max(values) * 1.15), 1, "kind")
    own |= {"shapes": [], "hovermode": False, "height": 270}
    own["margin"] = {"l": 150, "r": 30, "t": 8, "b": 44}
    own["yaxis"] = {"autorange": "reversed", "tickfont": {"color": INK, "size": 13}, "type": "category"}
    return {"data": [bars], "layout": own}
