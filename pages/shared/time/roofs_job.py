"""The measuring of this server's roofs: one at a time, whoever asks for it, seen by all; its result is kept for all.

Here is nothing of streamlit. It goes on when the visitor who asked for it leaves.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING, Any

from core.lab.roofs.kept import keep
from core.refusal import Refusal
from pages.shared.resources import engine

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.roofs.measure import Measuring
    from core.lab.roofs.processes import Runner


class RoofsJob:
    """The newest measuring, if there was one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._newest: Measuring | None = None

    def begin(self, runner: Runner | None = None) -> Measurement:
        """Puts a measuring in the line for the exclusive slot; the one under way, where there is one.

        `runner`: what probes run in, if not in processes of their own. Raises Refusal when it cannot begin.
        """
        # Only now: torch takes seconds to import.
        from core.lab.roofs.measure import measuring

        with self._lock:
            under_way = self.under_way
            if under_way is not None:
                return under_way
            made = self._newest = measuring(runner)
        made.measurement.future.add_done_callback(lambda _: _keep(made))
        return engine().measure(made.measurement)

    @property
    def under_way(self) -> Measurement | None:
        """What is measured, or waits for its turn, now."""
        newest = self._newest
        return None if newest is None or newest.measurement.future.done() else newest.measurement

    @property
    def refusal(self) -> Refusal | None:
        """Why the newest measuring ended without a result; None when it did not, or was stopped."""
        newest = self._newest
        if newest is None or not newest.measurement.future.done() or newest.measurement.future.cancelled():
            return None
        error = newest.measurement.future.exception()
        return error if error is None or isinstance(error, Refusal) else Refusal("engine.step_failed")


def _keep(made: Measuring) -> None:
    """What was measured completely is kept; called in the engine's thread."""
    future: Future[Any] = made.measurement.future
    roofs = None if future.cancelled() or future.exception() else made.roofs()
    if roofs is not None:
        keep(roofs)


ROOFS_JOB = RoofsJob()
