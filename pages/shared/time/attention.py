"""The panel of attention's own roof: why heads are shared."""

from __future__ import annotations

from core.estimate.attention_roof import attention_roof
from core.estimate.estimate import Request
from core.estimate.shape import Attention
from pages.shared.costs import Costs
from pages.shared.language import t
from pages.shared.numbers import count, significant
from pages.shared.time.charts import on_a_card
from pages.shared.time.panel import example, figures, heading, names, picture, predict, remark, takeaway

CHOICES = (1, 4, 32, 295)


def show(costs: Costs) -> None:
    """The question, the picture, the figure, what it shows."""
    heading("attention")
    _prediction()
    picture(costs, "attention_roof")
    remark(t("time.attention_note"))
    figures(costs, "attention", ("attention.roof", "roof.ridge"))
    made, own = on_a_card(costs.made)
    found = attention_roof(made.shape, made.request)
    if found is None:
        takeaway(t("time.takeaway_attention_none"))
        return
    key = "memory" if found < own.ridge else "compute"
    said = {"model": made.shape.name, "roof": significant(found), "ridge": significant(own.ridge)}
    takeaway(t(f"time.takeaway_attention_{key}", **said, below=significant(own.ridge / found)))


def _prediction() -> None:
    made = example()
    attention = made.shape.groups[0].attention
    assert isinstance(attention, Attention)
    found = attention_roof(made.shape, Request())
    assert found is not None
    heads = {"h": count(attention.n_heads), "n_kv": count(attention.n_kv_heads)}
    choices = {choice: t("time.about_intensity", intensity=count(choice)) for choice in CHOICES}
    why = t("time.guess_attention_why", **heads, roof=significant(found))
    predict("attention", choices, found, why, **names(), **heads)
