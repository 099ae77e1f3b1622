"""A measurement that may need fewer points than were planned for it, such as that of a text with an end token."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

from core.engine.exclusive import Measurement, Point


def until_ended(measurement: Measurement, has_ended: Callable[[], bool], heard: Callable[[Point], None]) -> Measurement:
    """Ends it behind the point after which `has_ended` says so; `heard` is told of each, in the engine's thread."""
    cancel = WeakMethod(measurement.cancel)  # no circle: caches should go with whoever holds the measurement

    def on_point(_: int, point: Point) -> None:
        if has_ended() and (end := cancel()) is not None:
            end()  # no further point
        heard(point)

    measurement.on_point = on_point
    return measurement
