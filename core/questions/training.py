"""Why training keeps no cache: one real training step of the tiny model, beside the same losses one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.questions.question import Experiment, Given, Ids, Outcome, Quantity

if TYPE_CHECKING:
    from core.lab.training_step import TrainingResult
    from core.model.load import LanguageModel


def training(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """A training step over the ids, and their losses found position by position with a cache."""
    from core.lab.training_step import TrainingStep  # torch takes seconds to import

    step = TrainingStep(model, ids)
    return Experiment(step.measurement(), lambda: training_outcome(step.result))


def training_outcome(result: TrainingResult) -> Outcome | None:
    """How many times the seconds of one forward pass over all positions a pass for each of them takes."""
    together, each = result.all_at_once, result.one_by_one
    if together is None or each is None:
        return None
    n = result.n_positions
    facts = {
        "positions": Quantity(n, ""),
        "difference": Quantity(result.loss_difference or 0.0, ""),
        "forward": Quantity(together.forward_seconds, "s"),
        "one_by_one": Quantity(each.seconds, "s"),
        "before": Quantity(sum(together.losses) / n, ""),
        "after": Quantity(sum(together.losses_after) / n, ""),
        "change": Quantity(together.cache_change, ""),
        "magnitude": Quantity(together.cache_magnitude, ""),
    }
    lines = {"before": together.losses, "after": together.losses_after}
    return Outcome(answer=each.seconds / together.forward_seconds, facts=facts, lines=lines)
