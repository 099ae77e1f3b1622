"""Headers of older versions, brought up to the present one, a version at a time.

1: no rows of attention, and of the machine its device alone ("device" beside "model").
2: "rows", and "machine" with the cores that the model could use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.engine.saved.container import VERSION


def brought_up(header: dict[str, Any], version: int) -> dict[str, Any]:
    """The header as the present version writes it."""
    for older in range(version, VERSION):
        header = _STEPS[older](header)
    return header


def _from_1(header: dict[str, Any]) -> dict[str, Any]:
    return {**header, "machine": {"device": header.get("device"), "n_cores": 0}, "rows": []}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
