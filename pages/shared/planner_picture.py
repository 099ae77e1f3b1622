"""The planner's rows as a picture: what each device needs against what it can hold."""

from __future__ import annotations

from collections.abc import Sequence

from pages.shared.charts import say_in
from pages.shared.figures.chart import Figure
from pages.shared.figures.planner import MemoryBar, memory_figure
from pages.shared.html import Html, fill
from pages.shared.language import language, t
from pages.shared.numbers import scaled_bytes
from pages.shared.planner import PlannerRow
from pages.shared.planner_table import row_card


def picture_heading() -> Html:
    """What the picture shows, and what its hatching means."""
    return fill(
        '<h2 class="tbt-h2 tbt-plan-heading">{title} <small class="tbt-note">{hatched}</small></h2>',
        title=t("planner.picture"),
        hatched=t("planner.picture_hatched"),
    )


def planner_picture(rows: Sequence[PlannerRow], units: str) -> Figure:
    """The chart's figure, in the visitor's language and units."""
    say = say_in(language(), units)
    words = {name: t(f"planner.mark_{name}") for name in ("weights", "kv", "capacity")} | {"axis": t("planner.axis")}
    bars = [_bar(row, units) for row in rows]
    return memory_figure(bars, words, unit=say.bytes_unit, unit_bytes=say.bytes_divisor)


def _bar(row: PlannerRow, units: str) -> MemoryBar:
    fit, card = row.fit, row_card(row)
    needed = scaled_bytes(fit.needed_bytes, units)
    told = t(
        "planner.told",
        model=row.model,
        card=card,
        weights=scaled_bytes(row.weight_bytes, units),
        kv=scaled_bytes(row.kv_bytes, units),
        needed=needed,
        capacity=scaled_bytes(fit.capacity_bytes, units),
        fits=t("planner.yes") if fit.fits else t("planner.no"),
    )
    short = card.replace(row.accelerator.name, row.accelerator.name.partition(" (")[0])
    return MemoryBar(row.model, short, row.weight_bytes, row.kv_bytes, fit.capacity_bytes, fit.fits, needed, told)
