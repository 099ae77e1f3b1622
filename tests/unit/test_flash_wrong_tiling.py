"""Tilings with a mistake in them: the counter of accesses notices, also where the output is right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from core.estimate.flash import Square, Tiles, whole_tiles_elements
from core.lab.flash.slow_memory import Head, Name, SlowMemory
from core.lab.flash.tiled import fold
from tests.unit.flash_operands import operands, reference


class Wrong:
    """Query tiles outside, keys inside, as in FlashAttention-2, with one thing done wrong."""

    def __init__(self, mistake: str) -> None:
        self._mistake = mistake

    def __call__(self, memory: SlowMemory, tiles: Tiles) -> Tensor:
        output = memory.make("O", memory.head_dim)
        n = memory.n_tokens
        columns_of = [range(begin, min(n, begin + tiles.key_rows)) for begin in range(0, n, tiles.key_rows)]
        kept: dict[tuple[Head, Name, int], Tensor] = {}
        for head in memory.heads:
            for begin in range(0, n, tiles.query_rows):
                rows = range(begin, min(n, begin + tiles.query_rows))
                queries = memory.load("Q", head, rows)
                running = (
                    queries.new_full((len(rows), 1), float("-inf")),
                    queries.new_zeros(len(rows), 1),
                    torch.zeros_like(queries),
                )
                for columns in columns_of:
                    keys, values = (self._tile(memory, head, name, columns, kept) for name in ("K", "V"))
                    running, _ = fold(queries, keys, values, running, None)
                memory.store("O", head, rows, running[2] / running[1])
        return output

    def _tile(
        self, memory: SlowMemory, head: Head, name: Name, columns: range, kept: dict[tuple[Head, Name, int], Tensor]
    ) -> Tensor:
        if self._mistake == "K is loaded twice" and name == "K":
            memory.load("K", head, columns)
        if self._mistake == "tiles are kept that do not fit":
            at = head, name, columns.start
            if at not in kept:
                kept[at] = memory.load(name, head, columns)
            return kept[at]
        if self._mistake == "only the first tile is loaded":
            at = head, name, len(columns)
            if at not in kept:
                kept[at] = memory.load(name, head, columns)
            return kept[at]
        return memory.load(name, head, columns)


@pytest.mark.parametrize(
    ("mistake", "is_right", "sign"),
    [
        ("none", True, 0),
        ("K is loaded twice", True, 1),
        ("tiles are kept that do not fit", True, -1),
        ("only the first tile is loaded", False, -1),
    ],
)
def test_the_counter_catches_a_wrong_tiling(mistake: str, is_right: bool, sign: int) -> None:
    given_operands = operands(24, 4, 2, 2)
    tiles, square = Tiles(order="query_outer", query_rows=6, key_rows=8), Square(n_tokens=24, head_dim=4, n_heads=2)
    memory = SlowMemory(*given_operands)
    output = Wrong(mistake)(memory, tiles)
    gap = memory.loaded + memory.stored - whole_tiles_elements(square, tiles)
    assert (gap > 0) - (gap < 0) == sign
    assert torch.allclose(output, reference(*given_operands, False), atol=1e-5) == is_right
    if mistake == "K is loaded twice":
        assert gap == 2 * 4 * 24 * 4  # two heads, four query tiles, all of K
