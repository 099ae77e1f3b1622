"""A visitor's live run as it can be saved: the record, with the attention of the head they look at.

Here is nothing of streamlit: a file is made when its button is pressed, outside of any run of the page.
"""

from __future__ import annotations

import time
from concurrent.futures import CancelledError

from core.engine.engine import Engine
from core.engine.run import Run
from core.engine.saved.numbers import MOST_WEIGHTS
from core.engine.saved_run import KeptRow, SavedRun, saved_run
from core.engine.trace import Trace
from core.refusal import Refusal
from pages.shared.started import Slot
from pages.shared.visit import Visit

STEPS_A_LOOK = 32
"""How many steps are looked into at a time: others' steps come in between."""
PATIENCE_SECONDS = 8.0
"""How long a look may wait, say for memory that others hold; the run is then saved without attention."""


def gathered(visit: Visit, engine: Engine, slot: Slot) -> SavedRun | None:
    """The visit's run at this moment; None where there is none."""
    started, trace = visit.started, visit.trace
    if started is None or trace is None or not trace.steps:
        return None
    rows = _rows(visit, engine, slot, trace) if started.config.use_cache else ()
    return saved_run(started.model, started, trace, rows=rows, waiting_seconds=visit.waiting_seconds, now=time.time())


def _rows(visit: Visit, engine: Engine, slot: Slot, trace: Trace) -> tuple[KeptRow, ...]:
    """The attention of the layer and head looked at, of as many of the newest steps as a file can take."""
    if visit.focus is None:
        return ()
    layer, head = visit.focus
    rows: list[KeptRow] = []
    first = _first_kept(trace)
    for begin in range(first, len(trace.steps), STEPS_A_LOOK):
        numbers = range(begin, min(begin + STEPS_A_LOOK, len(trace.steps)))

        def look(run: Run, numbers: range = numbers) -> list[KeptRow] | None:
            same = len(run.steps) > numbers[-1] and all(run.steps[each] is trace.steps[each] for each in numbers)
            if not (same and run.config.record.queries):
                return None  # the run has been begun anew meanwhile
            weights = ((each, run.attention(each, layer, head).weights) for each in numbers)
            return [KeptRow(step=each, layer=layer, head=head, weights=row) for each, row in weights]

        future = visit.look(engine, slot, look)
        try:
            found = future.result(PATIENCE_SECONDS)
        except (TimeoutError, CancelledError, Refusal):
            future.cancel()
            found = None
        if found is None:
            return ()
        rows += found
    return tuple(rows)


def _first_kept(trace: Trace) -> int:
    """From which step on the rows of attention, a weight a position, go into a file."""
    room = MOST_WEIGHTS
    for number in reversed(range(len(trace.steps))):
        room -= trace.steps[number].n_tokens
        if room < 0:
            return number + 1
    return 0
