"""What a sweep's file says of its plan and of what was predicted, as lines of its head: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.lab.sweep.plan import FILLS, LEAST_CONTEXT, SweepPlan, SweepRow
from core.lab.sweep.report import Prediction
from core.refusal import Refusal

CONTEXTS, BATCHES, REPEATS, PREDICTED, COMPARED = "contexts", "batches", "repeats", "predicted", "compared"
MOST_COUNT, MOST_BYTES, MOST_SECONDS = 10**8, 10**18, 10**5
"""What a row can hold: positions and sequences, bytes and FLOP of a step in thousands, seconds."""


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
            context, batch, written, _unit = text.removeprefix("n=").replace("B=", "").split(" ")
            seconds = float(written)
            if 0 < seconds < MOST_SECONDS:  # "nan" and "inf" are numbers to Python
                found.append(Prediction(int(batch), int(context), seconds))
        except ValueError:
            continue
    return tuple(found)


def is_possible(row: SweepRow) -> bool:
    """Whether a row out of a file holds numbers of a measurement: what is drawn is divided by them."""
    whole = (row.kv_bytes_formula, row.kv_bytes_measured, row.flops_chapter, row.flops_exact, row.bytes_read)
    return (
        LEAST_CONTEXT <= row.context <= MOST_COUNT
        and 1 <= row.batch <= MOST_COUNT
        and row.repeat <= MOST_COUNT
        and 1e-9 < row.decode_step_s < MOST_SECONDS
        and all(0 < value <= MOST_BYTES for value in whole)
    )
