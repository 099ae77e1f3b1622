"""The planner's prediction: how many long requests fit beside a well-known model on a well-known card?"""

from __future__ import annotations

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.estimate import Request
from pages.shared.guess import guess as ask
from pages.shared.guess import reveal
from pages.shared.language import t
from pages.shared.numbers import count, scaled_bytes
from pages.shared.planner import Plan, PlannedModel, PlannerRow, planner_rows
from pages.shared.units import units

MODEL, CARD, CONTEXT = "llama-3.1-8b", "rtx-4090", 2**15
CHOICES = (0, 1, 4, 16)
"""How many requests can be guessed; the right one is the most of these that fits."""


def guess() -> None:
    """The question, and when it is answered the answer; the page goes on either way."""
    row = asked()
    card, memory = row.accelerator.name, scaled_bytes(row.memory_bytes, units())
    named = {choice: t("planner.guess_none") if choice == 0 else count(choice) for choice in CHOICES}
    question = t("planner.guess", model=row.model, dtype="bf16", context=count(CONTEXT), card=card, memory=memory)
    said = ask(question, named, "plan_guess")
    if said is not None:
        verdict = t("planner.guess_right" if said == answer(row) else "planner.guess_wrong", answer=answer_words(row))
        reveal(t("planner.guess_answer", verdict=verdict, why=_why(row)))


def asked() -> PlannerRow:
    """What the question is about: one request."""
    plan = Plan(
        models=(PlannedModel(MODEL, catalogue.shape(MODEL)),),
        accelerators=(accelerator_named(CARD),),
        ranks=(1,),
        request=Request(context=CONTEXT),
    )
    (row,) = planner_rows(plan)
    return row


def answer(row: PlannerRow) -> int:
    """The right one of CHOICES."""
    most = row.fit.max_batch
    return max(choice for choice in CHOICES if most is None or choice <= most)


def answer_words(row: PlannerRow) -> str:
    """It in words."""
    return t("planner.guess_none") if answer(row) == 0 else count(answer(row))


def _why(row: PlannerRow) -> str:
    shown = units()
    return t(
        "planner.guess_why",
        weights=scaled_bytes(row.weight_bytes, shown),
        kv=scaled_bytes(row.kv_bytes, shown),
        capacity=scaled_bytes(row.fit.capacity_bytes, shown),
        most=count(row.fit.max_batch or 0),
    )
