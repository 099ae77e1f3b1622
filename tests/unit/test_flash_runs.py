"""Plain and tiled attention run: equal outputs, counted accesses, FLOP, memory, and the record of the walk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.estimate.flash import (
    ORDERS,
    Order,
    Square,
    Tiles,
    plain_elements,
    plain_flops,
    plain_kept_elements,
    rows_divisor,
    tiled_elements,
    tiled_kept_elements,
    tiles_for,
    whole_tiles_elements,
    whole_tiles_flops,
)
from core.lab.flash import comparison, plain
from core.lab.flash.comparison import REPEATS, TIMED, WAYS, FlashComparison
from core.lab.flash.plain import plain_attention
from core.lab.flash.slow_memory import SlowMemory
from core.lab.flash.tiled import tiled_attention
from core.lab.flash.walk import Walker
from core.model.device import Device
from core.refusal import Refusal
from tests.unit.flash_operands import operands, reference

CPU = Device(torch.device("cpu"))


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[Tensor, Tensor, Tensor], Tiles, bool]:
    n, d, n_kv = draw(st.integers(1, 40)), draw(st.integers(1, 12)), draw(st.integers(1, 3))
    h, batch = n_kv * draw(st.integers(1, 3)), draw(st.integers(1, 2))
    tiles = Tiles(
        order=draw(st.sampled_from(ORDERS)), query_rows=draw(st.integers(1, 45)), key_rows=draw(st.integers(1, 45))
    )
    return operands(n, d, h, n_kv, batch, draw(st.integers(0, 99))), tiles, draw(st.booleans())


@settings(deadline=None, max_examples=150)
@given(cases())
def test_tiled_equals_plain_and_both_equal_torch(case: tuple[tuple[Tensor, Tensor, Tensor], Tiles, bool]) -> None:
    given_operands, tiles, causal = case
    tiled_memory, plain_memory = SlowMemory(*given_operands), SlowMemory(*given_operands)
    tiled = tiled_attention(tiled_memory, tiles, causal=causal)
    written_out = plain_attention(plain_memory, causal=causal)
    torch.testing.assert_close(tiled, written_out, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(tiled, reference(*given_operands, causal), rtol=2e-5, atol=2e-5)
    batch, h, n, d = given_operands[0].shape
    square = Square(n_tokens=n, head_dim=d, n_heads=batch * h)
    moved = tiled_memory.loaded + tiled_memory.stored
    assert moved == whole_tiles_elements(square, tiles, causal=causal)
    assert plain_memory.loaded + plain_memory.stored == plain_elements(square)


@pytest.mark.parametrize("strip", [1, 5, 16, 100])
def test_strips_change_nothing(monkeypatch: pytest.MonkeyPatch, strip: int) -> None:
    monkeypatch.setattr(plain, "STRIP_ROWS", strip)
    given_operands = operands(16, 4, 2, 1)
    memory = SlowMemory(*given_operands)
    torch.testing.assert_close(plain_attention(memory, causal=True), reference(*given_operands, True))
    assert memory.loaded + memory.stored == plain_elements(Square(n_tokens=16, head_dim=4, n_heads=2))
    assert memory.loaded == 2 * (2 * 16**2 + 3 * 16 * 4) and memory.stored == 2 * (2 * 16**2 + 16 * 4)


@pytest.mark.parametrize("order", ORDERS)
def test_exact_tiles_count_what_the_formula_says(order: Order) -> None:
    n, d, rows, h = 96, 8, 12, 4
    fast = rows * rows_divisor(order, d)
    memory = SlowMemory(*operands(n, d, h, 2))
    tiled_attention(memory, tiles_for(order, fast, d))
    formula = tiled_elements(order, Square(n_tokens=n, head_dim=d, n_heads=h), fast)
    assert memory.loaded + memory.stored == pytest.approx(formula, rel=1e-12)
    assert memory.stored == (h * n * d if order == "query_outer" else 8 * h * n * (d + 2))
    assert memory.filled == (0 if order == "query_outer" else h * n * (d + 2))


def test_the_maximum_runs_over_scores_that_overflow() -> None:
    """e^200 is no number of 32 bits: without the maximum taken off, both would be infinite."""
    q, k, v = (50 * tensor for tensor in operands(24, 4, 1, 1))
    for order in ORDERS:
        tiled = tiled_attention(SlowMemory(q, k, v), Tiles(order=order, query_rows=5, key_rows=7), causal=True)
        assert tiled.isfinite().all()
        torch.testing.assert_close(tiled, reference(q, k, v, True), rtol=1e-4, atol=1e-4)


def test_what_is_loaded_is_a_copy() -> None:
    """Fast memory is not slow memory: what is changed there is not changed here."""
    memory = SlowMemory(*operands(8, 2, 2, 1))
    tile = memory.load("K", (0, 1), range(2, 5))
    before = tile.clone()
    tile.zero_()
    assert torch.equal(memory.load("K", (0, 0), range(2, 5)), before)  # both query heads share the one K head
    assert memory.loaded == 2 * 3 * 2


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_the_record_is_the_run(order: Order, causal: bool) -> None:
    given_operands = operands(30, 4, 3, 3, batch=2)
    memory = SlowMemory(*given_operands, followed=(0, 0))
    walker, tiles = Walker(memory), Tiles(order=order, query_rows=7, key_rows=11)
    tiled_attention(memory, tiles, causal=causal, walker=walker)
    last = walker.steps[-1]
    assert 6 * last.loaded == memory.loaded and 6 * last.stored == memory.stored
    for step in walker.steps:
        names = {access.name for access in step.accesses}
        assert {"K", "V"} <= names if order == "query_outer" else {"Q", "O", "l", "m"} <= names
        assert all(access.rows in (step.query_rows, step.key_rows) for access in step.accesses)
    q, k, _ = given_operands
    scores = (q[0, 0] @ k[0, 0].mT) * 4**-0.5
    for step in walker.steps:
        assert step.state is not None
        seen = step.key_rows.stop if not causal else min(step.key_rows.stop, step.state.row + 1)
        row = scores[step.state.row, :seen]
        assert step.state.maximum == pytest.approx(float(row.max()), rel=1e-5)
        assert step.state.total == pytest.approx(float((row - row.max()).exp().sum()), rel=1e-4)
        assert 0 <= step.state.rescaled <= 1


def measured(square: Square, fast: int, causal: bool) -> FlashComparison:
    made = FlashComparison(square, fast, causal=causal, device=CPU)
    for point in made.points():
        point()
    return made


@pytest.mark.parametrize("causal", [False, True])
def test_a_comparison_counts_and_times_all_three(causal: bool) -> None:
    square, fast = Square(n_tokens=100, head_dim=16, n_heads=3), 2048
    result = measured(square, fast, causal).result
    assert result.has_ended and set(result.seconds) == set(TIMED)
    assert all(len(runs) == REPEATS and min(runs) > 0 for runs in result.seconds.values())
    for way in WAYS:
        found = result.counted[way]
        assert found.difference < 1e-5
        moved = found.loaded + found.stored
        if way == "plain":
            assert moved == plain_elements(square) and found.flops == plain_flops(square)
            kept = plain_kept_elements(square)
        else:
            tiles = result.tiles[way]
            assert tiles == tiles_for(way, fast, 16)
            assert moved == whole_tiles_elements(square, tiles, causal=causal)
            assert found.flops == whole_tiles_flops(square, tiles, causal=causal)
            assert (found.flops == plain_flops(square)) != causal
            kept = tiled_kept_elements(way, square)
        assert result.peak_bytes[way] >= 4 * kept
        assert found.steps[-1].loaded * 3 == found.loaded and found.steps[-1].stored * 3 == found.stored


def test_memory_is_quadratic_in_the_plain_one_alone() -> None:
    """Twice the n at the same tiles: the peak goes four times up in one and twice at most in the other."""
    small, large = (measured(Square(n_tokens=n, head_dim=16), 8192, False).result.peak_bytes for n in (768, 1536))
    peaks = {way: (small[way], large[way]) for way in WAYS}
    assert peaks["plain"][1] > 3.3 * peaks["plain"][0]
    assert all(peaks[order][1] <= 2 * peaks[order][0] for order in ORDERS)
    assert all(peaks[order][1] < peaks["plain"][1] / 10 for order in ORDERS)


def test_a_point_may_be_measured_again() -> None:
    made = FlashComparison(Square(n_tokens=40, head_dim=8), 512, causal=False, device=CPU)
    for point in made.points():
        point()
        before = made.result
        point()
        after = made.result
        assert {way: (found.loaded, found.stored, found.flops) for way, found in before.counted.items()} == {
            way: (found.loaded, found.stored, found.flops) for way, found in after.counted.items()
        }
        assert {name: len(runs) for name, runs in before.seconds.items()} == {
            name: len(runs) for name, runs in after.seconds.items()
        }


@pytest.mark.parametrize(
    ("square", "fast", "word"),
    [
        (Square(n_tokens=64, head_dim=64), 100, "260 elements"),
        (Square(n_tokens=4096, head_dim=64), 2048, "tiles"),
        (Square(n_tokens=4096, head_dim=256, n_heads=16), 2**24, "GFLOP"),
    ],
)
def test_what_is_too_much_is_refused(square: Square, fast: int, word: str) -> None:
    with pytest.raises(Refusal, match=word):
        FlashComparison(square, fast, causal=False, device=CPU)


def test_the_bound_on_memory_holds() -> None:
    for square in (Square(n_tokens=300, head_dim=16, n_heads=2), Square(n_tokens=64, head_dim=256)):
        made = measured(square, 8192, False)
        inputs = 3 * square.n_heads * square.n_tokens * square.head_dim * comparison.DTYPE.itemsize
        assert made.needed_bytes >= inputs + max(made.result.peak_bytes.values())
