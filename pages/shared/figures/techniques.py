"""The charts of page 6's experiments: divergence against n, the time of a pass, an edit's wake, a long thought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

if TYPE_CHECKING:
    from core.lab.long_thought import ThoughtStep
    from core.lab.quality import HeldPosition
    from core.lab.speculative.records import PassTime
    from core.lab.surgery_records import EditResult, SurgeryResult
    from core.lab.thought_costs import ThoughtCosts

N_POINTS = 64
LOOKS = (
    *(("--tbt-decode", ""), ("--tbt-k", "7 4"), ("--tbt-q", "2 4")),
    *(("--tbt-v", "9 3 2 3"), ("--tbt-prefill", "4 2"), ("--tbt-weights", "1 3"), ("--tbt-ink", "12 4")),
)


def divergence_chart(name: str, positions: Sequence[HeldPosition], language: str) -> str:
    """KL in nats at each position of the held text."""
    word = partial(_word, language)
    worst = max(positions, key=lambda position: position.divergence)
    points = [(float(position.n_tokens), position.divergence) for position in positions]
    return chart_html(
        Chart(
            key=f"terms-{name}-divergence",
            title=word("divergence_title"),
            description=word("divergence_text", most=f"{worst.divergence:.2g}", n=worst.n_tokens),
            x_title=word("axis_n"),
            y_title=word("axis_kl"),
            series=[Series(name=word("divergence_line"), points=points, colour="--tbt-decode")],
            table_title=word("table_title"),
            heads=[word("axis_n"), word("axis_kl")],
            rows=[[f"{n:,.0f}", f"{kl:.3g}"] for n, kl in points],
        )
    )


def pass_chart(times: Sequence[PassTime], language: str) -> str:
    """Milliseconds of a pass over 1 … γ + 1 positions, beside as many single passes."""
    word = partial(_word, language)
    one = times[0].seconds
    taken = [(float(time.n_positions), 1000 * time.seconds) for time in times]
    single = [(float(time.n_positions), 1000 * one * time.n_positions) for time in times]
    return chart_html(
        Chart(
            key="terms-draft-pass",
            title=word("pass_title"),
            description=word("pass_text", first=f"{taken[0][1]:.3g}", last=f"{taken[-1][1]:.3g}", n=len(times)),
            x_title=word("axis_positions"),
            y_title=word("axis_ms"),
            series=[
                Series(name=word("pass_single"), points=single, colour="--tbt-weights", dash="6 4"),
                Series(name=word("pass_taken"), points=taken, colour="--tbt-decode", looks="points"),
            ],
            table_title=word("table_title"),
            heads=[word("axis_positions"), word("pass_taken"), word("pass_single")],
            rows=[[f"{n:.0f}", f"{ms:.3g}", f"{apart:.3g}"] for (n, ms), (_, apart) in zip(taken, single, strict=True)],
        )
    )


def surgery_chart(result: SurgeryResult, named: Callable[[EditResult], str], language: str) -> str:
    """KL from the untouched run at every later step, a line for each edit."""
    word = partial(_word, language)
    series = [
        Series(
            name=named(made),
            points=[(float(number), step.from_untouched.kl) for number, step in enumerate(made.steps, 1)],
            colour=colour,
            dash=dash,
        )
        for made, (colour, dash) in zip(result.edits, LOOKS, strict=False)
    ]
    worst = max(result.edits, key=lambda made: made.largest.kl)
    columns = [[f"{kl:.3g}" for _, kl in one.points] for one in series]
    return chart_html(
        Chart(
            key="terms-surgery",
            title=word("surgery_title"),
            description=word("surgery_text", edit=named(worst), most=f"{worst.largest.kl:.2g}"),
            x_title=word("axis_step"),
            y_title=word("axis_kl"),
            series=series,
            table_title=word("table_title"),
            heads=[word("axis_step"), *(one.name for one in series)],
            rows=[[f"{number}", *cells] for number, cells in enumerate(zip(*columns, strict=True), 1)],
        )
    )


def thought_chart(steps: Sequence[ThoughtStep], language: str) -> str:
    """Milliseconds of each step of a real long run."""
    word = partial(_word, language)
    points = [(float(step.n_tokens), 1000 * step.seconds) for step in steps]
    every = max(1, len(steps) // N_POINTS)
    return chart_html(
        Chart(
            key="terms-thought-steps",
            title=word("thought_title"),
            description=word("thought_text", first=steps[0].n_tokens, last=steps[-1].n_tokens),
            x_title=word("axis_n"),
            y_title=word("axis_ms"),
            series=[Series(name=word("thought_line"), points=points, colour="--tbt-decode")],
            table_title=word("table_title"),
            heads=[word("axis_n"), word("axis_ms")],
            rows=[[f"{n:,.0f}", f"{ms:.3g}"] for n, ms in points[::every]],
        )
    )


def memory_chart(costs: ThoughtCosts, language: str, divisor: int, unit: str) -> str:
    """Weights and cache against n by formula, and what the card may hold. `divisor`: bytes in one `unit`."""
    word = partial(_word, language)
    every = max(1, len(costs.n_tokens) // N_POINTS)
    places = [*range(0, len(costs.n_tokens), every), len(costs.n_tokens) - 1]
    held = [(float(costs.n_tokens[i]), (costs.kv_bytes[i] + costs.weight_bytes) / divisor) for i in places]
    most = [(held[0][0], costs.capacity_bytes / divisor), (held[-1][0], costs.capacity_bytes / divisor)]
    is_inside = costs.full_at is not None and held[0][0] <= costs.full_at <= held[-1][0]
    return chart_html(
        Chart(
            key="terms-thought-memory",
            title=word("memory_title"),
            description=word("memory_text", last=f"{held[-1][1]:.1f}", most=f"{most[0][1]:.1f}", unit=unit),
            x_title=word("axis_n"),
            y_title=unit,
            series=[
                Series(name=word("memory_most"), points=most, colour="--tbt-weights", dash="6 4"),
                Series(name=word("memory_held"), points=held, colour="--tbt-k"),
            ],
            marks=[(float(costs.full_at or 0), word("memory_full"))] if is_inside else (),
            table_title=word("table_title"),
            heads=[word("axis_n"), f"{word('memory_held')} ({unit})"],
            rows=[[f"{n:,.0f}", f"{size:.2f}"] for n, size in held],
        )
    )


def _word(language: str, key: str, **values: object) -> str:
    return sentence(f"terms.{key}", language, **values)
