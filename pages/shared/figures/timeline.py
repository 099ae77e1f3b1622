"""Memory over a request: the cache's stairs below, the activations of every layer on top of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

if TYPE_CHECKING:
    from core.lab.moments import Moment, Timeline

PREFILL, DECODE, RESERVED, USED = "--tbt-prefill", "--tbt-decode", "--tbt-edge", "--tbt-k"


def timeline_chart(
    made: Timeline,
    language: str,
    unit: tuple[str, int],
    written: Callable[[int], str],
    *,
    prefill_only: bool = False,
) -> str:
    """The whole request, or its prefill alone. `unit`: what the axis counts in and how many bytes it is."""
    moments = made.of(0) if prefill_only else list(made.moments)
    which = "prefill" if prefill_only else "request"

    def word(key: str, **values: object) -> str:
        return sentence(f"timeline.{key}", language, **values)

    n_prefill = len(made.of(0))
    return chart_html(
        Chart(
            key=f"timeline-{which}",
            title=word(f"chart_{which}"),
            description=word(f"text_{which}", peak=written(made.peak(0)), used=written(_most_used(moments))),
            x_title=word("axis_moments"),
            y_title=word("axis_bytes", unit=unit[0]),
            series=_series(moments, n_prefill, unit[1], word),
            marks=[] if prefill_only else [(n_prefill, word("mark_decode")), (len(moments), word("mark_end"))],
            table_title=word("table_title"),
            heads=[word(f"head_{name}") for name in _heads(prefill_only)],
            rows=_layer_rows(made, written) if prefill_only else _step_rows(made, word, written),
        )
    )


def _series(moments: Sequence[Moment], n_prefill: int, unit_bytes: int, word: Callable[[str], str]) -> list[Series]:
    """Each moment is the end of a part: its peak lies inside, what is left of it at its end."""
    tops: list[tuple[float, float]] = []
    used: list[tuple[float, float]] = [(0, 0.0)]
    reserved: list[tuple[float, float]] = [(0, 0.0)]
    for number, moment in enumerate(moments, 1):
        held = moment.kv_reserved_bytes
        tops += [
            (number - 0.5, (held + moment.peak_bytes) / unit_bytes),
            (number, (held + moment.activation_bytes) / unit_bytes),
        ]
        used.append((number, moment.kv_used_bytes / unit_bytes))
        reserved.append((number, held / unit_bytes))
    if moments and moments[-1].part == "end":  # a little further, so that the fall can be seen
        for points in (tops, used, reserved):
            points.append((len(moments) + len(moments) // 30, points[-1][1]))
    cut = 2 * n_prefill  # two points a moment; the decode steps begin where the prefill ends
    phases = (("prefill", PREFILL, tops[:cut]), ("decode", DECODE, tops[cut - 1 :] if len(moments) > n_prefill else []))
    return [
        *(
            Series(name=word(f"line_activations_{phase}"), points=points, colour=colour, looks="area")
            for phase, colour, points in phases
            if points
        ),
        Series(name=word("line_reserved"), points=reserved, colour=RESERVED, looks="steps"),
        Series(name=word("line_used"), points=used, colour=USED, looks="steps"),
    ]


def _heads(prefill_only: bool) -> tuple[str, ...]:
    return ("layer", "peak", "used") if prefill_only else ("step", "n", "peak", "used", "reserved", "left")


def _layer_rows(made: Timeline, written: Callable[[int], str]) -> list[list[str]]:
    """For each layer of the prefill its peak, and what was in the cache behind its attention."""
    used = {moment.layer: moment.kv_used_bytes for moment in made.of(0) if moment.part == "attention"}
    return [[str(k), written(peak), written(used[k])] for k, peak in enumerate(made.layer_peaks(0))]


def _step_rows(made: Timeline, word: Callable[[str], str], written: Callable[[int], str]) -> list[list[str]]:
    rows = []
    for step in sorted({moment.step for moment in made.moments}):
        moments = [moment for moment in made.of(step) if moment.part != "end"]
        last = moments[-1]
        rows.append(
            [
                word("step_decode" if step else "step_prefill"),
                f"{made.n_tokens + step:,}",
                written(made.peak(step)),
                written(last.kv_used_bytes),
                written(last.kv_reserved_bytes),
                written(last.activation_bytes),
            ]
        )
    return rows


def _most_used(moments: Sequence[Moment]) -> int:
    return max((moment.kv_used_bytes for moment in moments), default=0)
