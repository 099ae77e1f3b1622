"""What this process has one of: the shelf of models, the engine's thread, and the memory of visits."""

from __future__ import annotations

from functools import cache
from threading import Lock

from core.engine.worker import Worker
from pages.shared.keep import Keeper
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


@cache
def _keeper() -> Keeper:
    return Keeper()


def shelf() -> Shelf:
    """The models; the first call begins to load them and returns at once."""
    with _one_at_a_time:  # `cache` alone would let two first callers make one each
        return _shelf()


def engine() -> Worker:
    """The one thread that decodes."""
    with _one_at_a_time:
        return _engine()


def keeper() -> Keeper:
    """What is kept of visits, so that a refresh finds its run again."""
    with _one_at_a_time:
        return _keeper()
