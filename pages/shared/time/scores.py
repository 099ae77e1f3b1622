"""The panel of plain attention's written table of scores: why a prefill can turn memory-bound."""

from __future__ import annotations

from core.estimate.score_table import intensity_limit, outweighs_at, table_bytes
from core.estimate.where import roof
from pages.shared.costs import Costs
from pages.shared.language import t
from pages.shared.numbers import count, scaled_bytes, significant
from pages.shared.time.charts import on_a_card
from pages.shared.time.panel import example, figures, heading, names, picture, predict, remark, takeaway
from pages.shared.units import units

CHOICES = (600, 6000, 60_000, 600_000)


def show(costs: Costs) -> None:
    """The question, the picture, the figures, what it shows."""
    heading("scores")
    _prediction()
    picture(costs, "score_table")
    remark(t("time.scores_note"))
    figures(costs, "scores", ("scores.intensity", "scores.outweighs_at", "scores.table_bytes"))
    made, own = on_a_card(costs.made)
    crossing = outweighs_at(made.shape, own)
    if crossing is None:
        takeaway(t("time.takeaway_scores_none"))
        return
    n = round(crossing)
    takeaway(
        t(
            "time.takeaway_scores",
            limit=significant(intensity_limit(made.shape)),
            ridge=significant(own.ridge),
            n=count(n),
            bytes=scaled_bytes(table_bytes(made.shape, n, made.request.batch), units()),
        )
    )


def _prediction() -> None:
    made = example()
    own = roof(made)
    assert own is not None
    crossing = outweighs_at(made.shape, own)
    assert crossing is not None
    why = t("time.guess_scores_why", n=count(round(crossing)), limit=significant(intensity_limit(made.shape)))
    choices = {choice: t("costs.about_tokens", n=count(choice)) for choice in CHOICES}
    predict("scores", choices, crossing, why, **names())
