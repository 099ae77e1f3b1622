"""What this process has one of: the shelf of models and the engine's thread."""

from __future__ import annotations

from functools import cache
from threading import Lock

from core.engine.worker import Worker
from pages.shared.shelf import Shelf

_one_at_a_time = Lock()


@cache
def _shelf() -> Shelf:
    shelf = Shelf()
    shelf.start()
    return shelf


@cache
def _engine() -> Worker:
    return Worker("engine")


def shelf() -> Shelf:
    """The models; the first call begins to load them and returns at once."""
    with _one_at_a_time:  # `cache` alone would let two first callers make one each
        return _shelf()


def engine() -> Worker:
    """The one thread that decodes."""
    with _one_at_a_time:
        return _engine()
