"""One token with the cache and without, against n: the second is also what a prefill of n positions takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

if TYPE_CHECKING:
    from core.lab.phase_times import PhaseTimes

WHOLE, CACHED = "--tbt-prefill", "--tbt-decode"


def phases_chart(found: Sequence[PhaseTimes], language: str, written: Callable[[float], str]) -> str:
    """Milliseconds of both. `written` is a duration as text."""

    def word(key: str, **values: object) -> str:
        return sentence(f"lab.{key}", language, **values)

    last = found[-1]
    return chart_html(
        Chart(
            key="lab-phases",
            title=word("phases_chart"),
            description=word(
                "phases_alt", n=f"{last.context:,}", whole=written(last.whole_s), cached=written(last.cached_s)
            ),
            x_title=word("axis_n"),
            y_title=word("axis_ms"),
            series=[
                Series(
                    name=word("phases_whole"),
                    points=[(one.context, 1e3 * one.whole_s) for one in found],
                    colour=WHOLE,
                    looks="points",
                    dash="6 4",
                ),
                Series(
                    name=word("phases_cached"),
                    points=[(one.context, 1e3 * one.cached_s) for one in found],
                    colour=CACHED,
                    looks="points",
                ),
            ],
            table_title=word("phases_table"),
            heads=[word(f"head_{name}") for name in ("n", "whole", "cached", "times", "flops_times")],
            rows=[
                [
                    f"{one.context:,}",
                    written(one.whole_s),
                    written(one.cached_s),
                    f"{one.whole_s / one.cached_s:,.1f}×",
                    f"{one.whole_flops / one.cached_flops:,.1f}×",
                ]
                for one in found
            ],
        )
    )
