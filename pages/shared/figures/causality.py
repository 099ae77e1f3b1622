"""How far old keys and values moved when tokens were written to their right, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.words import sentence
from pages.shared.figures.svg import Chart, Series, chart_html

if TYPE_CHECKING:
    from core.lab.causality import Change

KEYS, VALUES, MASKED = "--tbt-k", "--tbt-v", "--tbt-prefill"


def written(difference: float) -> str:
    """A difference as text: 0, 3.8e-06, 0.41, 12.3."""
    return "0" if difference == 0 else f"{difference:.1e}" if difference < 0.001 else f"{difference:.3g}"


def causality_chart(masked: Change, unmasked: Change, language: str) -> str:
    """Largest differences against the layer, with the mask and without."""

    def word(key: str, **values: object) -> str:
        return sentence(f"causality.{key}", language, **values)

    numbers = range(len(masked.layers))
    return chart_html(
        Chart(
            key="causality-layers",
            title=word("chart_title"),
            description=word(
                "chart_text",
                masked=written(masked.largest),
                first=written(unmasked.layers[0].largest),
                unmasked=written(unmasked.largest),
            ),
            x_title=word("axis_layer"),
            y_title=word("axis_difference"),
            series=[
                Series(
                    name=word("line_keys"),
                    points=[(k, unmasked.layers[k].keys) for k in numbers],
                    colour=KEYS,
                    looks="points",
                ),
                Series(
                    name=word("line_values"),
                    points=[(k, unmasked.layers[k].values) for k in numbers],
                    colour=VALUES,
                    looks="points",
                    dash="6 4",
                ),
                Series(
                    name=word("line_masked"),
                    points=[(k, masked.layers[k].largest) for k in numbers],
                    colour=MASKED,
                    looks="points",
                ),
            ],
            table_title=word("table_title"),
            heads=[
                word("head_layer"),
                *(word(f"head_{what}_{how}") for how in ("masked", "unmasked") for what in ("keys", "values")),
            ],
            rows=[
                [
                    str(k),
                    *(
                        written(value)
                        for change in (masked, unmasked)
                        for value in (change.layers[k].keys, change.layers[k].values)
                    ),
                ]
                for k in numbers
            ],
        )
    )
