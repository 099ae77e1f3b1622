"""The charts of page 6's experiments on what many share: speed against batch, experts met, passes of a prefill."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

if TYPE_CHECKING:
    from core.lab.batched import BatchResult
    from core.lab.chunked import ChunkResult
    from core.lab.few_experts import FewExpertsResult


def speed_chart(result: BatchResult, language: str) -> str:
    """Tokens a second against B, as multiples of those with B = 1: by bytes read, and measured."""
    word = partial(_word, language)
    reckoned = [(float(point.batch), result.by_bytes(point)) for point in result.points]
    taken = [(float(point.batch), result.speedup(point)) for point in result.points]
    return chart_html(
        Chart(
            key="terms-batching-speed",
            title=word("speed_title"),
            description=word("speed_text", batch=f"{taken[-1][0]:.0f}", speed=f"{taken[-1][1]:.2f}"),
            x_title=word("axis_batch"),
            y_title=word("axis_speed"),
            series=[
                Series(name=word("speed_by_bytes"), points=reckoned, colour="--tbt-weights", dash="6 4"),
                Series(name=word("speed_measured"), points=taken, colour="--tbt-decode", looks="points"),
            ],
        )
    )


def met_chart(result: FewExpertsResult, language: str) -> str:
    """Different experts against B: the curve of the formula, chance and the router."""
    word = partial(_word, language)
    last, chance, router = result.batches[-1], [], []
    for batch in result.batches:
        chance.append((float(batch), result.at("uniform", batch).mean_distinct))
        router.append((float(batch), result.at("random", batch).mean_distinct))
    curve = [(float(batch), result.expected_distinct(batch)) for batch in range(1, last + 1)]
    return chart_html(
        Chart(
            key="terms-experts-met",
            title=word("met_title"),
            description=word("met_text", batch=last, met=f"{chance[-1][1]:.1f}", formula=f"{curve[-1][1]:.1f}"),
            x_title=word("axis_batch"),
            y_title=word("axis_experts"),
            series=[
                Series(name=word("met_formula"), points=curve, colour="--tbt-weights", dash="6 4"),
                Series(name=word("met_chance"), points=chance, colour="--tbt-decode", looks="marks"),
                Series(name=word("met_router"), points=router, colour="--tbt-ink", looks="marks", shape="triangle"),
            ],
        )
    )


def chunk_chart(result: ChunkResult, language: str) -> str:
    """Milliseconds against the chunk size: of the longest pass, and of all."""
    word = partial(_word, language)
    longest = [(float(point.chunk), 1000 * point.longest_s) for point in result.points]
    whole = [(float(point.chunk), 1000 * point.seconds) for point in result.points]
    return chart_html(
        Chart(
            key="terms-chunks-times",
            title=word("chunk_title"),
            description=word(
                "chunk_text",
                first=f"{longest[0][1]:.3g}",
                last=f"{longest[-1][1]:.3g}",
                all_first=f"{whole[0][1]:.3g}",
                all_last=f"{whole[-1][1]:.3g}",
            ),
            x_title=word("axis_chunk"),
            y_title=word("axis_ms"),
            series=[
                Series(name=word("chunk_all"), points=whole, colour="--tbt-weights", dash="6 4", looks="points"),
                Series(name=word("chunk_longest"), points=longest, colour="--tbt-prefill", looks="points"),
            ],
        )
    )


def _word(language: str, key: str, **values: object) -> str:
    return sentence(f"terms.{key}", language, **values)
