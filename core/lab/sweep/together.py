"""Several measurements as one, their points in turn: what is compared is measured side by side, not one after another.

A machine that grows slower or faster meanwhile does so for all of them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from core.engine.exclusive import Measurement, Point


def together(measurements: Sequence[Measurement]) -> Measurement:
    """One for the exclusive slot with the points of all; each hears of its own as if it were alone.

    Room is kept for all of them: their caches live side by side.
    """
    columns = [[(number, index) for index in range(len(one.points))] for number, one in enumerate(measurements)]
    order = [place for row in zip_longest(*columns) for place in row if place is not None]

    def on_point(index: int, point: Point) -> None:
        number, own_index = order[index]
        measurements[number].on_point(own_index, point)

    points = [measurements[number].points[index] for number, index in order]
    return Measurement("sweep", points, n_bytes=sum(one.n_bytes for one in measurements), on_point=on_point)
