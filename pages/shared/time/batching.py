"""Does batching help? The panel of intensity against the batch, its ceilings, and the contexts beyond them."""

from __future__ import annotations

from core.estimate.where import roof, where_json
from pages.shared.costs import Costs
from pages.shared.language import t
from pages.shared.numbers import count, significant
from pages.shared.time.charts import on_a_card
from pages.shared.time.panel import example, figures, heading, names, picture, predict, remark, takeaway

CHOICES = (400, 4000, 40_000, 400_000)


def show(costs: Costs) -> None:
    """The question, the picture, the figures, what it shows."""
    heading("batching")
    _prediction()
    picture(costs, "batching")
    remark(t("time.batching_note"))
    figures(
        costs,
        "batching",
        ("batching.ceiling", "batching.batch", "batching.limit_chapter", "batching.limit", "batching.limit_full"),
    )
    takeaway(sentence(costs))


def sentence(costs: Costs) -> str:
    """What the limits are, and on which side of them the dials stand."""
    made, own = on_a_card(costs.made)
    found = where_json(made)["batching"]
    n, ridge = made.request.context, significant(own.ridge)
    said = {"n": count(n), "ridge": ridge, "ceiling": significant(found["ceiling"] or 0)}
    if found["ceiling"] is None:
        return t("time.takeaway_batching_no_cache")
    if found["limit"] is None:
        text = t("time.takeaway_batching_never", **said, batch=count(found["batch"] or 0))
        return text if found["limit_full"] is None else f"{text} {t('time.never_full', full=_full(found))}"
    limits, full = {"limit": count(found["limit"])}, _full(found)
    key = "below" if found["batch"] is not None else "beyond"
    more = {"batch": count(found["batch"])} if key == "below" else {}
    return t(f"time.takeaway_batching_{key}", **said, **limits, **more, full=full)


def _full(found: dict[str, int | None]) -> str:
    """What the card's memory makes of the limit."""
    return t("time.limit_full", n=count(found["limit_full"])) if found["limit_full"] else t("time.limit_full_none")


def _prediction() -> None:
    made = example()
    own, found = roof(made), where_json(made)["batching"]
    assert own is not None
    why = t(
        "time.guess_batching_why",
        chapter=count(found["limit_chapter"]),
        exact=count(found["limit"]),
        full=count(found["limit_full"]),
        ridge=significant(own.ridge),
    )
    choices = {choice: t("costs.about_tokens", n=count(choice)) for choice in CHOICES}
    predict("batching", choices, found["limit"], why, **names())
