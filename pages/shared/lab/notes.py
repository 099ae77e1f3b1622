"""What a sweep's file says of its plan and of what was predicted, as lines of its head: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.lab.sweep.plan import FILLS, SweepPlan, SweepRow
from core.lab.sweep.report import Prediction
from core.refusal import Refusal

CONTEXTS, BATCHES, REPEATS, PREDICTED, COMPARED = "contexts", "batches", "repeats", "predicted", "compared"


def notes_of(plan: SweepPlan, predictions: Sequence[Prediction], compared: str) -> dict[str, str]:
    """Lines for the head, beside those of the machine. `compared`: what this sweep is one of several for, or ""."""
    said = {
        CONTEXTS: " ".join(map(str, plan.contexts)),
        BATCHES: " ".join(map(str, plan.batches)),
        REPEATS: str(plan.repeats),
    }
    if predictions:
        said[PREDICTED] = "; ".join(f"n={one.context} B={one.batch} {one.step_s!r} s" for one in predictions)
    return said | ({COMPARED: compared} if compared else {})


def plan_of(head: Mapping[str, str], rows: Sequence[SweepRow]) -> SweepPlan:
    """The plan as the head says it, else as far as the rows show it. Raises Refusal where neither makes one."""
    fill = FILLS[head.get("caches", "").startswith("fast")]
    try:
        contexts, batches = (tuple(map(int, head[name].split())) for name in (CONTEXTS, BATCHES))
        repeats = int(head[REPEATS])
    except (KeyError, ValueError):
        contexts = tuple(sorted({row.context for row in rows}))
        batches = tuple(sorted({row.batch for row in rows}))
        repeats = 1 + max((row.repeat for row in rows), default=0)
    if not contexts or not batches:
        raise Refusal("lab.file_empty")
    return SweepPlan(contexts=contexts, batches=batches, repeats=repeats, fill=fill)


def predictions_of(head: Mapping[str, str]) -> tuple[Prediction, ...]:
    """What was predicted, as far as it can be read."""
    found = []
    for text in head.get(PREDICTED, "").split("; "):
        try:
            context, batch, seconds, _unit = text.removeprefix("n=").replace("B=", "").split(" ")
            found.append(Prediction(int(batch), int(context), float(seconds)))
        except ValueError:
            continue
    return tuple(found)
