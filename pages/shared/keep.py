"""What is kept of visitors who left: record and settings for ten minutes, so that a refresh finds them. No tensors.

A refresh is a new session. The tab remembers the name of its visit, asks for it, and gets a copy under a new name: a
duplicated tab does the same and neither disturbs the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pages.shared.started import Slot
    from pages.shared.visit import Visit  # which brings torch: the server starts without it

KEPT_SECONDS = 600.0
MOST_LEFT = 256


@dataclass
class Kept:
    """A visit with its settings; while its visitor is here, `slot` holds the run and `left_at` is None."""

    visit: Visit
    settings: Mapping[str, str]
    slot: Slot | None
    left_at: float | None = None


@dataclass
class Keeper:
    """All visits by name: those of visitors who are here, and for a while those of visitors who left."""

    now: Callable[[], float] = time.monotonic
    _kept: dict[str, Kept] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def hold(self, visit: Visit, slot: Slot, settings: Mapping[str, str]) -> None:
        """Notes that a visitor is here, where their run lies, and what their page says now."""
        with self._lock:
            self._kept[visit.key] = Kept(visit, settings, slot)
            self._sweep()

    def here(self, key: str) -> tuple[Visit, Slot] | None:
        """The visit of somebody who is here, with the place of its run; None for any other name."""
        with self._lock:
            kept = self._kept.get(key)
            return None if kept is None or kept.slot is None else (kept.visit, kept.slot)

    def left(self, key: str) -> None:
        """Notes that a visitor is gone: the time begins to run."""
        with self._lock:
            if key in self._kept:
                self._kept[key].left_at, self._kept[key].slot = self.now(), None
            self._sweep()

    def copy(self, key: str) -> tuple[Visit, Mapping[str, str]] | None:
        """A copy of a kept visit under a new name, with its settings; None when there is none (any more)."""
        with self._lock:
            self._sweep()
            kept = self._kept.get(key)
            return None if kept is None else (kept.visit.copy(), kept.settings)

    def sweep(self) -> None:
        """Drops what was kept long enough."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        latest = self.now() - KEPT_SECONDS
        left = sorted((kept.left_at, key) for key, kept in self._kept.items() if kept.left_at is not None)
        too_many = max(0, len(left) - MOST_LEFT)
        for number, (left_at, key) in enumerate(left):
            if left_at <= latest or number < too_many:
                del self._kept[key]
