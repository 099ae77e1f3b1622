"""What visitors predicted and what came out, kept as long as a run is, so that a refresh finds it. No streamlit here.

A refresh is a new session. The tab remembers the name under which its progress was kept and asks for it; the session
that is given a copy goes on under a name of its own. So a duplicated tab and its first do not disturb each other, and
whoever does not know the name gets nothing. What is kept was made here: a browser hands back the name alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from pages.shared.keep import KEPT_SECONDS, MOST_LEFT

if TYPE_CHECKING:
    from pages.shared.questions.progress import Progress

MOST_KEPT = 1024
"""Visitors, those who are here included; whoever did nothing for longest goes first."""


@dataclass
class ProgressKeeper:
    """The progress of all visitors by name, and when those left who are gone; both the oldest first."""

    now: Callable[[], float] = time.monotonic
    _kept: dict[str, Progress] = field(default_factory=dict)
    _left_at: dict[str, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def hold(self, name: str, progress: Progress) -> None:
        """Notes how far a visitor is who is here. Nothing is kept of one who has said nothing."""
        with self._lock:
            self._drop(name)
            if progress.pledges or progress.answered:
                self._kept[name] = progress
            self._sweep()

    def left(self, name: str) -> None:
        """Notes that a visitor is gone: the time begins to run."""
        with self._lock:
            if name in self._kept:
                self._left_at.setdefault(name, self.now())
            self._sweep()

    def of(self, name: str) -> Progress | None:
        """What is kept under a name; None when it is nothing (any more)."""
        with self._lock:
            self._sweep()
            return self._kept.get(name)

    def sweep(self) -> None:
        """Drops what was kept long enough."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        latest = self.now() - KEPT_SECONDS
        too_many = len(self._left_at) - MOST_LEFT
        for number, (name, left_at) in enumerate(list(self._left_at.items())):
            if left_at <= latest or number < too_many:
                self._drop(name)
        for name in list(self._kept)[: max(0, len(self._kept) - MOST_KEPT)]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._kept.pop(name, None)
        self._left_at.pop(name, None)


@cache
def progress_keeper() -> ProgressKeeper:
    """This process's."""
    return ProgressKeeper()
