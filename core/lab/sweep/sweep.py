"""Decode steps of B sequences together at context n, measured spot by spot in the exclusive slot.

Caches are filled once, to the longest context; every spot works on copies of their beginnings. A spot's first step
warms up, then a few are timed from the very same caches: what a step has added is taken back behind the clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from statistics import median
from weakref import WeakMethod

from core.engine.exclusive import Measurement, Point
from core.engine.trace import StepEvent
from core.estimate.flops import decode_flops_chapter
from core.estimate.kv import kv_bytes
from core.lab.decode_step import decode_step
from core.lab.sweep.fill import FilledCaches
from core.lab.sweep.forecast import check_room, needed_bytes
from core.lab.sweep.plan import Spot, SweepPlan, SweepRow
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel

N_TIMED = 3
"""Steps of a spot; its seconds are their median."""
N_STEPS = 1 + N_TIMED
OnRow = Callable[[SweepRow], None]


class Sweep:
    """Made anywhere; its measurement runs in the engine's thread, and `rows` may be read from any."""

    def __init__(
        self, model: LanguageModel, plan: SweepPlan, budget_bytes: int, measured: Collection[Spot] = ()
    ) -> None:
        """`measured`: spots that need no measuring, of an earlier run.

        Raises Refusal for a context beyond the model's, and for more than the budget holds.
        """
        check_room(model, plan, budget_bytes)
        self._model, self._plan = model, plan
        self._spots = [spot for spot in plan.spots() if spot not in measured]
        most = max((spot.batch for spot in self._spots), default=0), max((s.context for s in self._spots), default=1)
        self._filled = FilledCaches(model, most[0], most[1] - 1, plan.fill)
        self.rows: list[SweepRow] = []

    @property
    def n_spots(self) -> int:
        """How many are to be measured."""
        return len(self._spots)

    def measurement(self, on_row: OnRow = lambda row: None) -> Measurement:
        """All of it for the exclusive slot; `on_row` hears of every row, in the thread that measures."""
        n_chunks = len(self._filled.chunks)
        measurement = Measurement("sweep", self.points(), n_bytes=needed_bytes(self._model, self._plan))
        heard = WeakMethod(self._heard)

        def on_point(index: int, point: Point) -> None:
            if index >= n_chunks and (hear := heard()) is not None:
                hear(point, on_row)

        measurement.on_point = on_point
        return measurement

    def points(self) -> list[Callable[[], SweepRow | None]]:
        """The caches chunk by chunk, then every spot. A point may be measured again."""
        filling = (partial(self._filled.fill, row, begin) for row, begin in self._filled.chunks)
        return [*filling, *(partial(self._measure, spot) for spot in self._spots)]

    def _heard(self, point: Point, on_row: OnRow) -> None:
        row: SweepRow = replace(point.value, disturbed=point.disturbed)
        self.rows.append(row)
        on_row(row)

    def _measure(self, spot: Spot) -> SweepRow:
        model, n, batch = self._model, spot.context, spot.batch
        caches = self._filled.copies(batch, n - 1)
        model.device.reset_peak_memory()
        steps = [self._step(spot, caches) for _ in range(N_STEPS)]
        events = steps[-1]
        return SweepRow(
            context=n,
            batch=batch,
            repeat=spot.repeat,
            kv_bytes_formula=int(kv_bytes(model.shape, n_tokens=n, batch=batch, dtypes=model.kv_dtypes)),
            kv_bytes_measured=sum(event.kv_bytes for event in events),
            decode_step_s=median(of_step[0].seconds for of_step in steps[1:]),
            flops_chapter=int(decode_flops_chapter(model.shape, n, batch)),
            flops_exact=sum(event.flops_exact for event in events),
            bytes_read=events[0].weight_bytes_read + sum(event.kv_bytes_read for event in events),
            peak_memory_bytes=peak_memory_bytes(model),
        )

    def _step(self, spot: Spot, caches: list[KVCache]) -> list[StepEvent]:
        """One step from caches of n − 1 positions, which they are again behind it."""
        ids = self._filled.ids[: spot.batch, : spot.context].tolist()
        events = decode_step(self._model, ids, caches)
        for cache in caches:
            cache.truncate(spot.context - 1)
        return events


def peak_memory_bytes(model: LanguageModel) -> int | None:
    """The most that was given out on the device since the last reset; on a CPU the most the process ever took."""
    on_device = model.device.peak_memory_bytes()
    if on_device is not None or model.device.kind != "cpu":
        return on_device
    try:
        import resource  # not on every system
    except ImportError:
        return None
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return taken if sys.platform == "darwin" else taken * 1024
