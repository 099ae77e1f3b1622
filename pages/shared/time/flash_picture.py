"""The walk of plain and tiled attention as the browser plays it: lists of what was recorded, nothing reckoned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pages.shared.component import component
from pages.shared.language import language

if TYPE_CHECKING:
    from core.estimate.flash import Order
    from core.lab.flash.comparison import FlashResult
    from core.lab.flash.walk import WalkStep

KEY = "flash"
HELD_FOR_THE_PASS = {"S": "K", "O": "V"}
"""What plain attention writes → what it holds from its first strip to its last."""


def show_picture(result: FlashResult, order: Order) -> None:
    """Draws the walk of a result in one of the two orders, beside plain attention's."""
    component("tbt_flash", "flash")(key=KEY, data=walk_data(result, order) | {"language": language()})


def walk_data(result: FlashResult, order: Order) -> dict[str, Any]:
    """Both walks as lists; ranges are [first, one after the last], counts are elements of one head."""
    tiled, plain = (result.counted[way].steps for way in (order, "plain"))
    n = result.square.n_tokens
    return {
        "n": n,
        "order": order,
        "tiled": [_step(step) + _state(step) for step in tiled],
        "plain": [[*_step(step), _held(step, n)] for step in plain],
    }


def _step(step: WalkStep) -> list[Any]:
    """[queries, keys, elements loaded so far, stored so far, accesses]."""
    accesses = [
        [access.kind, access.name, access.rows.start, access.rows.stop, access.n_elements] for access in step.accesses
    ]
    queries, keys = ([rows.start, rows.stop] for rows in (step.query_rows, step.key_rows))
    return [queries, keys, step.loaded, step.stored, accesses]


def _state(step: WalkStep) -> list[Any]:
    """[row, running maximum, running sum, factor of the older sum], the numbers as short as a screen shows them."""
    state = step.state
    assert state is not None
    return [[state.row, *(float(f"{value:.4g}") for value in (state.maximum, state.total, state.rescaled))]]


def _held(step: WalkStep, n: int) -> list[Any]:
    """[name, first, one after the last] of what is in fast memory: what this strip moved, and the pass's K or V."""
    written = step.accesses[-1].name
    held = [[HELD_FOR_THE_PASS[written], 0, n]] if written in HELD_FOR_THE_PASS else []
    moved = [[access.name, access.rows.start, access.rows.stop] for access in step.accesses]
    return held + [one for one in moved if one not in held]
