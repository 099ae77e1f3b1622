"""What is kept of visitors who left: record and settings for ten minutes, so that a refresh finds them. No tensors.

A refresh is a new session. The tab remembers the name of its visit and asks for it. When its visitor has left, it is
theirs again; a duplicated tab, whose first is still there, gets a copy under a new name. Neither disturbs the other.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pages.shared.started import Slot
    from pages.shared.visit import Visit  # which brings torch: the server starts without it

KEPT_SECONDS = 600.0
MOST_LEFT = 128
# A refresh takes a second or two, and so does a network that drops: only then is a long pass ended.
GRACE_SECONDS = 5.0

logger = logging.getLogger(__name__)


def new_key() -> str:
    """A name that nobody can guess."""
    return secrets.token_urlsafe(16)


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
    grace_seconds: float = GRACE_SECONDS
    _kept: dict[str, Kept] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def n_here(self) -> int:
        """Visitors who are here now."""
        with self._lock:
            return self._n_here()

    def hold(self, visit: Visit, slot: Slot, settings: Mapping[str, str]) -> None:
        """Notes that a visitor is here, where their run lies, and what their page says now."""
        with self._lock:
            known = self._kept.get(visit.key)
            self._kept[visit.key] = Kept(visit, settings, slot)
            self._sweep()
            n_here = self._n_here()
        if known is None or known.slot is None:
            logger.info("A visitor came.", extra={"visitors": n_here})

    def here(self, key: str) -> tuple[Visit, Slot] | None:
        """The visit of somebody who is here, with the place of its run; None for any other name."""
        with self._lock:
            kept = self._kept.get(key)
            return None if kept is None or kept.slot is None else (kept.visit, kept.slot)

    def left(self, key: str, slot: Slot) -> None:
        """Notes that a visitor is gone: the time begins to run, and soon their work ends too.

        Said of a `slot` that is not theirs any more it means nothing: their connection dropped, and is back.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.slot is not slot:
                return
            kept.left_at, kept.slot = self.now(), None
            self._sweep()
            n_here = self._n_here()
        logger.info("A visitor left.", extra={"visitors": n_here})
        timer = Timer(self.grace_seconds, self._abandon, [key])
        timer.daemon = True
        timer.start()

    def claim(self, key: str) -> tuple[Visit, Mapping[str, str]] | None:
        """A kept visit with its settings, for the tab that knows its name; None when there is none (any more).

        Whose visitor left comes back as it is, a step under way included; else it is a copy under a new name.
        """
        with self._lock:
            self._sweep()
            kept = self._kept.get(key)
            if kept is None:
                return None
            if kept.left_at is None:
                return kept.visit.copy(), kept.settings
            kept.left_at = None
            kept.visit.arrived = (0, 0)  # the tab begins with an empty record
            return kept.visit, kept.settings

    def gave_way(self, key: str) -> None:
        """Forgets a visit in which nothing had happened when its visitor took up an earlier one."""
        with self._lock:
            self._kept.pop(key, None)

    def sweep(self) -> None:
        """Drops what was kept long enough."""
        with self._lock:
            self._sweep()

    def _n_here(self) -> int:
        return sum(kept.slot is not None for kept in self._kept.values())

    def _abandon(self, key: str) -> None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.left_at is not None:
                kept.visit.abandon()

    def _sweep(self) -> None:
        latest = self.now() - KEPT_SECONDS
        left = sorted((kept.left_at, key) for key, kept in self._kept.items() if kept.left_at is not None)
        too_many = max(0, len(left) - MOST_LEFT)
        for number, (left_at, key) in enumerate(left):
            if left_at <= latest or number < too_many:
                del self._kept[key]
