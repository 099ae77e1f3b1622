"""The heatmap n × B: a table whose cells hold their numbers, the darker the larger."""

from __future__ import annotations

from collections.abc import Callable

from core.lab.sweep.plan import Cell
from pages.shared.html import Html, fill, join
from pages.shared.lab.shown import Shown
from pages.shared.language import t
from pages.shared.numbers import count

KINDS: dict[str, Callable[[Cell], float]] = {
    "step": lambda cell: 1e3 * cell.median_s,
    "tokens": lambda cell: cell.batch / cell.median_s,
}
MOST_TINT = 55
"""Percent of the accent in the darkest cell: text on it keeps its contrast."""


def heatmap(shown: Shown, kind: str) -> Html:
    """Milliseconds of a step, or tokens a second of the whole batch, at each n and B."""
    value = KINDS[kind]
    found = {(cell.context, cell.batch): value(cell) for cell in shown.found.cells}
    contexts, batches = (sorted({place[axis] for place in found}) for axis in (0, 1))
    most = max(found.values())
    head = join(fill('<th scope="col">{n}</th>', n=count(n)) for n in contexts)
    rows = join(
        fill(
            '<tr><th scope="row">{batch}</th>{cells}</tr>',
            batch=f"B={count(batch)}",
            cells=join(_cell(found.get((n, batch)), most) for n in contexts),
        )
        for batch in batches
    )
    return fill(
        '<div class="tbt-scroll" tabindex="0" role="region" aria-label="{title}"><table class="tbt-facts tbt-lab-heat">'
        "<caption>{title}</caption>"
        '<thead><tr><th scope="col">n</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
        title=t(f"lab.heat_{kind}_title"),
        head=head,
        rows=rows,
    )


def _cell(value: float | None, most: float) -> Html:
    if value is None:
        return fill("<td>–</td>")
    return fill(
        '<td style="--tbt-tint:{tint}%">{text}</td>',
        tint=f"{MOST_TINT * value / most:.0f}",
        text=f"{value:,.2f}" if value < 99.95 else f"{value:,.0f}",
    )
