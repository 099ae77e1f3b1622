"""What plain and tiled attention move, keep and compute, by formula: published cases L01 and L03, and the issue's."""

from __future__ import annotations

from fractions import Fraction

import pytest

from core.estimate.derivation import Derivation, Factor, Real, Term
from core.estimate.flash import (
    ORDERS,
    Order,
    Square,
    Tiles,
    passes_derivation,
    plain_derivation,
    plain_elements,
    plain_flops,
    plain_kept_elements,
    rows_divisor,
    tiled_derivation,
    tiled_elements,
    tiled_kept_elements,
    tiles_for,
    traffic_ratio,
    visited,
    whole_tiles_elements,
    whole_tiles_flops,
)
from core.refusal import Refusal

M = 98_304
"""192 KiB of two-byte elements: one streaming multiprocessor of an A100."""


def written_out(order: Order, n: int, d: int, m: int) -> Fraction:
    """The issue's closed forms, a head."""
    pairs = Fraction(n * n, m)
    if order == "query_outer":
        return 2 * n * d + 8 * pairs * d**2 + 8 * pairs * d
    return 2 * n * d + 12 * pairs * d**2 + 16 * pairs * d


def key(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("order", "head_dim", "ratio"),
    [("query_outer", 64, 9.2), ("query_outer", 128, 2.8), ("key_outer", 64, 6.7), ("key_outer", 128, 2.0)],
)
def test_the_ratios_at_1024(order: Order, head_dim: int, ratio: float) -> None:
    square = Square(n_tokens=1024, head_dim=head_dim)
    assert round(traffic_ratio(order, square, M), 1) == ratio
    whole = plain_elements(square) / whole_tiles_elements(square, tiles_for(order, M, head_dim))
    assert 0.85 * ratio < whole < ratio


def test_the_published_ratio() -> None:
    """L01, arXiv 2205.14135 Fig. 2: 40.3 GB against 4.4 GB. Those include the backward pass; the digits agree."""
    square = Square(n_tokens=1024, head_dim=64, n_heads=64 * 16)
    assert traffic_ratio("query_outer", square, M) == pytest.approx(40.3 / 4.4, rel=0.01)


@pytest.mark.parametrize("order", ORDERS)
def test_both_are_quadratic(order: Order) -> None:
    """L03, Theorem 2: twice the n, four times the traffic in both; twice the M, half of it in the tiled one."""
    one, two = (Square(n_tokens=n, head_dim=64) for n in (2**20, 2**21))
    assert plain_elements(two) / plain_elements(one) == pytest.approx(4, rel=1e-3)
    assert tiled_elements(order, two, M) / tiled_elements(order, one, M) == pytest.approx(4, rel=1e-2)
    assert tiled_elements(order, one, M) / tiled_elements(order, one, 2 * M) == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_kept_grows_with_n_alone(order: Order) -> None:
    one, two = (Square(n_tokens=n, head_dim=64, n_heads=3) for n in (4096, 8192))
    assert tiled_kept_elements(order, two) == 2 * tiled_kept_elements(order, one)
    assert plain_kept_elements(one) == 3 * (2 * 4096**2 + 4096 * 64)
    assert plain_kept_elements(two) / plain_kept_elements(one) > 3.9


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("n", "d", "m"), [(1024, 64, M), (1024, 128, M), (777, 32, 5000), (4096, 256, 131072)])
def test_the_closed_forms(order: Order, n: int, d: int, m: int) -> None:
    square = Square(n_tokens=n, head_dim=d, n_heads=5)
    assert tiled_elements(order, square, m) == pytest.approx(float(5 * written_out(order, n, d, m)), rel=1e-12)
    assert plain_elements(square) == 5 * (4 * n * n + 4 * n * d)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("n", "d", "rows"), [(96, 8, 12), (256, 64, 32), (60, 5, 60)])
def test_whole_tiles_meet_the_formula_where_they_divide_n(order: Order, n: int, d: int, rows: int) -> None:
    memory, square = rows * rows_divisor(order, d), Square(n_tokens=n, head_dim=d, n_heads=2)
    tiles = tiles_for(order, memory, d)
    assert tiles.key_rows == rows
    assert whole_tiles_elements(square, tiles) == pytest.approx(tiled_elements(order, square, memory), rel=1e-12)
    assert whole_tiles_flops(square, tiles) == plain_flops(square) == 2 * 4 * n * n * d


def test_tiles_fit_into_fast_memory() -> None:
    for d in (16, 64, 128, 256):
        for memory in (2048, 8192, M, 131072):
            flash2, first = (tiles_for(order, memory, d) for order in ORDERS)
            held = 2 * d * (flash2.query_rows + flash2.key_rows) + 4 * flash2.query_rows
            assert held <= memory < held + 4 * (d + 1)
            assert 2 * d * (first.query_rows + first.key_rows) <= memory
            assert first.query_rows * first.key_rows <= memory // 4  # the scores of a tile
    assert tiles_for("key_outer", M, 64) == Tiles(order="key_outer", query_rows=64, key_rows=384)
    for order in ORDERS:
        least = rows_divisor(order, 64)
        assert tiles_for(order, least, 64).key_rows == 1
        with pytest.raises(Refusal, match=str(least)):
            tiles_for(order, least - 1, 64)


@pytest.mark.parametrize("order", ORDERS)
def test_a_causal_walk_leaves_out_what_no_query_sees(order: Order) -> None:
    square, tiles = Square(n_tokens=10, head_dim=3), Tiles(order=order, query_rows=4, key_rows=3)
    walked = visited(square, tiles, causal=True)
    everything = visited(square, tiles)
    for rows, columns in everything:
        sees_one = any(k <= q for q in rows for k in columns)
        assert ((rows, columns) in walked) == sees_one
    assert [len(everything), len(walked)] == [12, 2 + 3 + 4]
    assert whole_tiles_flops(square, tiles, causal=True) == 4 * 3 * (4 * 6 + 4 * 9 + 2 * 10)
    outer = [pair[0 if order == "query_outer" else 1].start for pair in everything]
    assert outer == sorted(outer)


def test_the_formulas_open_with_their_values() -> None:
    square = Square(n_tokens=1024, head_dim=64, n_heads=2)
    passes = passes_derivation("query_outer", square, M)
    assert passes.formula(key) == "T = \\frac{4\\, (d_h + 1)\\, n}{M}"
    assert passes.value == pytest.approx(4 * 65 * 1024 / M)
    tiled = tiled_derivation("query_outer", square, M)
    assert "2\\, h\\, n\\, d_h\\, T" in tiled.formula(key) and "262{,}144" in tiled.substituted()
    assert "ms" not in tiled.substituted() and "709{,}973.333333" in tiled.substituted()
    assert plain_derivation(square).whole == plain_elements(square)


def test_a_term_that_need_not_be_whole_is_no_time() -> None:
    """It was shown as milliseconds: what is read of the experts that are expected to be chosen."""
    term = Term((Factor("P", 4_000_000), Factor("E", Real(2.5))))
    derivation = Derivation("R", (term, Term((Factor("P", 7), Factor("", 2)))))
    assert isinstance(term.value, Real) and term.value == 10_000_000
    assert "_{10{,}000{,}000}" in derivation.substituted() and "ms" not in derivation.substituted()
