"""What the engine is handed of a visit, and what a step leaves to be shown. Nothing of streamlit here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.engine.run import Interrupted, Run
from core.engine.trace import AttentionRow, StepEvent, Trace
from pages.shared.started import Started

if TYPE_CHECKING:
    from pages.shared.visit import Visit


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a visit's run: `begin` finds the run, `took` hears of it and its step; both in the engine's thread.

    It counts for the version that its visitor saw, `seen`; behind it there is a new one. `steps` says whether a step is
    computed for it.
    """

    visit: Visit
    seen: int
    begin: Callable[[], Run | None]
    took: Callable[[Run, StepEvent | None], None]
    steps: bool = True

    def begins(self) -> Run | None:
        """Looks again whether the click still counts: two may have been queued together."""
        if self.seen != self.visit.version:
            return None
        self.visit.under_way = self.begin()
        return self.visit.under_way

    def ends(self, run: Run | None, event: StepEvent | None, error: BaseException | None) -> None:
        """The run is as it will be shown. After an interrupt, the reset that asked for it comes next."""
        try:
            if error is not None and not isinstance(error, Interrupted):
                raise error
            if error is None and run is not None and (event is not None or not self.steps):
                self.took(run, event)
        finally:
            self.visit.version += self.seen == self.visit.version
            self.visit.under_way = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a step of a stream left to be shown: the record as it was then, whatever happens meanwhile."""

    started: Started
    trace: Trace
    attention: AttentionRow | None
    run_number: int
    version: int
    waiting_seconds: float


def shown(visit: Visit) -> Shown | None:
    """A visit's run as it is now; None where there is none."""
    if visit.started is None or visit.trace is None:
        return None
    return Shown(
        visit.started, visit.trace, visit.newest_attention, visit.run_number, visit.version, visit.waiting_seconds
    )
