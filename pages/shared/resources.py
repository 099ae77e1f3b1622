"""What this process has one of: the shelf of models, the engine's thread, and the memory of visits."""

from __future__ import annotations

import os
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from core.engine.limits import Limits, kv_budget_bytes, limits_set
from core.engine.status import Status
from pages.shared.keep import Keeper
from pages.shared.logs import LogListener
from pages.shared.metrics import Metrics
from pages.shared.shelf import Shelf

if TYPE_CHECKING:
    from core.engine.engine import Engine

_one_at_a_time = Lock()


@cache
def _shelf() -> Shelf:
    shelf = Shelf()
    shelf.start()
    return shelf


@cache
def _engine() -> Engine:
    from core.engine.engine import Engine  # imports torch, which takes seconds
    from core.model.device import choose_device

    device = choose_device(os.environ.get("TBT_DEVICE") or None)
    return Engine(lambda: kv_budget_bytes(device.free_memory_bytes()), [_metrics(), LogListener()])


@cache
def _keeper() -> Keeper:
    return Keeper()


@cache
def _metrics() -> Metrics:
    return Metrics(engine_status, lambda: keeper().n_here)


def shelf() -> Shelf:
    """The models; the first call begins to load them and returns at once."""
    with _one_at_a_time:  # `cache` alone would let two first callers make one each
        return _shelf()


@cache
def limits() -> Limits:
    """What one visitor may ask for."""
    return limits_set()


def engine() -> Engine:
    """The one thread that decodes, for all visitors together."""
    with _one_at_a_time:
        return _engine()


def engine_status() -> Status:
    """What the engine says about itself at this moment."""
    return engine().status() if _engine.cache_info().currsize else Status()


def sweep_engine() -> None:
    """Gives the caches of those back who have rested long."""
    if _engine.cache_info().currsize:
        engine().sweep()


def stop_engine() -> None:
    """Ends the engine's thread, if there is one; whoever asks for it later gets a new one."""
    if _engine.cache_info().currsize:
        engine().stop()
        _engine.cache_clear()


def metrics() -> Metrics:
    """What is counted for Prometheus."""
    with _one_at_a_time:
        return _metrics()


def keeper() -> Keeper:
    """What is kept of visits, so that a refresh finds its run again."""
    with _one_at_a_time:
        return _keeper()
