"""Patience: one thread that looks at every open exchange and hangs up where it has waited long enough.

A socket's own timeout begins anew with every byte, so a server that sends a byte a minute is waited for without end.
Here a deadline belongs to what is waited for: an answer, a first token, the next one, the whole sweep.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Protocol, Self

from core.lab.remote.faults import Fault, Kind

LOOK_EVERY_S = 0.05


class Waiting(Protocol):
    """What can be hung up: `due_at` on the monotonic clock, and what it means that it has passed."""

    due_at: float
    due_kind: Kind

    def hang_up(self, kind: Kind) -> None:
        """Ends the exchange from another thread; whoever reads it raises a Fault of this kind."""


class Watch:
    """Made with a sweep and closed with it. `cancel` ends everything; so does the clock at `ends_at`."""

    def __init__(self, total_s: float, cancel: threading.Event | None = None) -> None:
        self.cancel = cancel or threading.Event()
        self.ends_at = time.monotonic() + total_s
        self._waiting: set[Waiting] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="endpoint-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def add(self, waiting: Waiting) -> None:
        """From now on it is looked at."""
        with self._lock:
            self._waiting.add(waiting)

    def remove(self, waiting: Waiting) -> None:
        """It has ended."""
        with self._lock:
            self._waiting.discard(waiting)

    @property
    def end(self) -> Kind | None:
        """Why nothing more is to be asked, if so."""
        if self.cancel.is_set():
            return Kind.CANCELLED
        return Kind.NO_TIME if time.monotonic() >= self.ends_at else None

    def check(self) -> None:
        """Raises Fault where the sweep is to end."""
        if (end := self.end) is not None:
            raise Fault(end)

    def pause(self, seconds: float) -> None:
        """Waits; raises Fault at once where the sweep is cancelled, or would be over before the wait is."""
        if time.monotonic() + seconds >= self.ends_at:
            raise Fault(Kind.NO_TIME)
        self.cancel.wait(seconds)
        self.check()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            now, end = time.monotonic(), self.end
            with self._lock:
                late = [(waiting, end or waiting.due_kind) for waiting in self._waiting if end or now >= waiting.due_at]
            for waiting, kind in late:
                waiting.hang_up(kind)
