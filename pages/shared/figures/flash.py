"""FlashAttention's two charts, by the formulas: what is moved against n, and how many times fewer against M."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from core.estimate.flash import ORDERS, Square, plain_elements, tiled_elements, traffic_ratio
from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

PLAIN, TILED = "--tbt-weights", "--tbt-prefill"
N_POINTS = 24
ELEMENTS_PER_KIB = 1024 // 2
"""Of two bytes each."""
HEAD_DIMS = (32, 64, 128, 256)
_LOOKS = (("--tbt-prefill", ""), ("--tbt-decode", "7 4"), ("--tbt-k", "2 4"), ("--tbt-q", "9 3 2 3"))


def traffic_chart(square: Square, fast_elements: int, language: str, written: Callable[[float], str]) -> str:
    """Elements of one head in millions against n up to twice the n at hand. `written`: a count as text."""

    def word(key: str, **values: object) -> str:
        return sentence(f"flash.{key}", language, **values)

    most = 2 * square.n_tokens
    squares = [replace(square, n_tokens=most * k // N_POINTS, n_heads=1) for k in range(1, N_POINTS + 1)]
    moved = {"plain": [float(plain_elements(one)) for one in squares]}
    moved |= {order: [tiled_elements(order, one, fast_elements) for one in squares] for order in ORDERS}
    looks = {"plain": (PLAIN, "6 4"), "query_outer": (TILED, ""), "key_outer": (TILED, "2 4")}
    return chart_html(
        Chart(
            key="flash-traffic",
            title=word("traffic_title"),
            description=word("traffic_text", n=most, **{way: written(values[-1]) for way, values in moved.items()}),
            x_title=word("axis_n"),
            y_title=word("axis_elements"),
            series=[
                Series(
                    name=word(f"head_{way}"),
                    points=[(one.n_tokens, value / 10**6) for one, value in zip(squares, moved[way], strict=True)],
                    colour=colour,
                    dash=dash,
                )
                for way, (colour, dash) in looks.items()
            ],
            marks=[(square.n_tokens, word("mark_now"))],
            table_title=word("table_title"),
            heads=[word(f"head_{name}") for name in ("n", *looks)],
            rows=[
                [f"{one.n_tokens:,}", *(written(values[place]) for values in moved.values())]
                for place, one in enumerate(squares)
            ],
        )
    )


def ratio_chart(square: Square, kib: int, sizes: Sequence[int], language: str, written: Callable[[float], str]) -> str:
    """Plain over tiled (FlashAttention-2's order) against M up to the largest of `sizes` in KiB, by head dimension.

    `written`: a ratio as text.
    """

    def word(key: str, **values: object) -> str:
        return sentence(f"flash.{key}", language, **values)

    def ratio(head_dim: int, memory: int) -> float:
        of = replace(square, head_dim=head_dim, n_heads=1)
        return traffic_ratio("query_outer", of, memory * ELEMENTS_PER_KIB)

    most = max(sizes)
    memories = sorted({*(most * k // N_POINTS for k in range(1, N_POINTS + 1)), *sizes})
    return chart_html(
        Chart(
            key="flash-ratio",
            title=word("ratio_title"),
            description=word(
                "ratio_text", n=square.n_tokens, kib=kib, d=square.head_dim, ratio=written(ratio(square.head_dim, kib))
            ),
            x_title=word("axis_memory"),
            y_title=word("axis_ratio"),
            series=[
                Series(
                    name=word("series_head_dim", d=head_dim),
                    points=[(memory, ratio(head_dim, memory)) for memory in memories],
                    colour=colour,
                    dash=dash,
                )
                for head_dim, (colour, dash) in zip(HEAD_DIMS, _LOOKS, strict=True)
            ],
            marks=[(kib, word("mark_now"))],
            table_title=word("table_title"),
            heads=[word("head_memory"), *(word("series_head_dim", d=head_dim) for head_dim in HEAD_DIMS)],
            rows=[[str(memory), *(written(ratio(head_dim, memory)) for head_dim in HEAD_DIMS)] for memory in sizes],
        )
    )
