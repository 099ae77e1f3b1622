"""The race's two charts: positions of every step as dots, and its measured seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html, dot_amount

if TYPE_CHECKING:
    from core.lab.race import RaceResult

CACHED, RECOMPUTED = "--tbt-decode", "--tbt-weights"


def positions_chart(result: RaceResult, language: str, written: Callable[[int], str]) -> str:
    """A triangle against a line: what each step sends through the layers. `written` is a whole number as text."""
    numbers = range(1, len(result.steps) + 1)

    def word(key: str, **values: object) -> str:
        return sentence(f"race.{key}", language, **values)

    total, most = result.positions, max(step.recomputed.positions for step in result.steps)
    return chart_html(
        Chart(
            key="race-positions",
            title=word("positions_title"),
            description=word(
                "positions_text", cached=written(int(total.cached)), recomputed=written(int(total.recomputed))
            ),
            x_title=word("axis_step"),
            y_title=word("axis_positions", dot=written(dot_amount(most))),
            series=[
                Series(
                    name=word("lane_recomputed"),
                    points=[(k, step.recomputed.positions) for k, step in zip(numbers, result.steps, strict=True)],
                    colour=RECOMPUTED,
                    looks="columns",
                    shift=2.2,
                ),
                Series(
                    name=word("lane_cached"),
                    points=[(k, step.cached.positions) for k, step in zip(numbers, result.steps, strict=True)],
                    colour=CACHED,
                    looks="columns",
                    shift=-2.2,
                ),
            ],
            table_title=word("table_title"),
            heads=[word(f"head_{name}") for name in ("step", "n", "cached", "recomputed")],
            rows=[
                [written(k), written(step.n_tokens), written(step.cached.positions), written(step.recomputed.positions)]
                for k, step in zip(numbers, result.steps, strict=True)
            ],
        )
    )


def seconds_chart(result: RaceResult, language: str, written: Callable[[float], str]) -> str:
    """Both lanes' measured time of a step against n. `written` is seconds as text."""

    def word(key: str, **values: object) -> str:
        return sentence(f"race.{key}", language, **values)

    first, last = result.steps[0], result.steps[-1]
    return chart_html(
        Chart(
            key="race-seconds",
            title=word("seconds_title"),
            description=word(
                "seconds_text",
                first=first.n_tokens,
                last=last.n_tokens,
                cached=written(last.cached.seconds),
                recomputed=written(last.recomputed.seconds),
            ),
            x_title=word("axis_n"),
            y_title=word("axis_ms"),
            series=[
                Series(
                    name=word("lane_recomputed"),
                    points=[(step.n_tokens, 1000 * step.recomputed.seconds) for step in result.steps],
                    colour=RECOMPUTED,
                    looks="points",
                    dash="6 4",
                ),
                Series(
                    name=word("lane_cached"),
                    points=[(step.n_tokens, 1000 * step.cached.seconds) for step in result.steps],
                    colour=CACHED,
                    looks="points",
                ),
            ],
            table_title=word("table_title"),
            heads=[word(f"head_{name}") for name in ("n", "cached", "recomputed", "logits")],
            rows=[
                [
                    f"{step.n_tokens:,}",
                    written(step.cached.seconds),
                    written(step.recomputed.seconds),
                    "–" if step.logit_difference is None else f"{step.logit_difference:.1e}",
                ]
                for step in result.steps
            ],
        )
    )
