"""What plain and tiled attention move between slow and fast memory, by formula.

Figures are elements (numbers, whatever their width) of `n_heads` query heads over all sequences. Every head works for
itself on a fast memory of M elements and loads the keys and values it needs, also where heads share them. Sources:
FlashAttention (arXiv 2205.14135), Algorithm 1 and Theorem 2; FlashAttention-2 (arXiv 2307.08691), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.estimate.derivation import FOUR, TWO, Derivation, Factor, Real, Term
from core.refusal import Refusal

Order = Literal["query_outer", "key_outer"]
ORDERS: tuple[Order, Order] = ("query_outer", "key_outer")
"""FlashAttention-2's loops and those of the first paper: which tiles the outer loop walks over."""
E, R, T = "E", "r", "T"
_THREE = Factor("", 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """The n×n square of every head: n queries meet n keys of width d_h."""

    n_tokens: int
    head_dim: int
    n_heads: int = 1

    @property
    def factors(self) -> tuple[Factor, Factor, Factor]:
        """h, n, d_h."""
        return Factor("h", self.n_heads), Factor("n", self.n_tokens), Factor("d_h", self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How many query rows and key rows a tile has, and which of the two the outer loop walks over."""

    order: Order
    query_rows: int
    key_rows: int


def rows_divisor(order: Order, head_dim: int) -> int:
    """How many elements of fast memory one row of a tile takes.

    FlashAttention-2's order: a row of Q, of O, of K and of V, and four numbers a row: the running maximum and sum, and
    the tile's own. The first paper's Algorithm 1 (line 1): the four rows alone. The tile's scores are counted in
    neither: they live in registers, or come a few columns at a time.
    """
    return 4 * (head_dim + 1) if order == "query_outer" else 4 * head_dim


def tiles_for(order: Order, fast_elements: int, head_dim: int) -> Tiles:
    """The largest whole tiles that fit into M elements.

    Algorithm 1 takes at most d_h query rows, so that the scores of a tile fit as well; it rounds up, this rounds down.
    Raises Refusal where not even one row fits.
    """
    rows = fast_elements // rows_divisor(order, head_dim)
    if rows < 1:
        raise Refusal("flash.memory_too_small", least=rows_divisor(order, head_dim), head_dim=head_dim)
    return Tiles(order=order, query_rows=rows if order == "query_outer" else min(rows, head_dim), key_rows=rows)


def plain_derivation(square: Square) -> Derivation:
    """Loads Q, K; stores S; loads S; stores P; loads P, V; stores O: 4n² + 4n·d_h a head.

    Each operand once a product, as if it fitted: a floor for what a plain implementation moves.
    """
    h, n, d_h = square.factors
    tables = Term((FOUR, h, n._replace(power=2)), "flash.term_tables")
    return Derivation(E, (tables, Term((FOUR, h, n, d_h), "flash.term_operands")))


def passes_derivation(order: Order, square: Square, fast_elements: int) -> Derivation:
    """How many tiles the outer loop has, parts of tiles included: n over the rows of a tile."""
    _, n, d_h = square.factors
    row = (FOUR, d_h._replace(plus=1)) if order == "query_outer" else (FOUR, d_h)
    return Derivation(T, (Term((*row, n)),), over=(Factor("M", fast_elements),))


def tiled_derivation(order: Order, square: Square, fast_elements: int) -> Derivation:
    """Elements that the tiled attention moves, with T passes that need not be whole.

    FlashAttention-2's order: Q and O once, K and V once for every query tile: 2n·d_h + 8n²d_h²/M + 8n²d_h/M a head.
    Algorithm 1: K and V once; for every key tile Q is loaded, O, l and m are loaded and stored:
    2n·d_h + 12n²d_h²/M + 16n²d_h/M a head.
    """
    h, n, d_h = square.factors
    passes = Factor(T, Real(passes_derivation(order, square, fast_elements).value))
    if order == "query_outer":
        once = Term((TWO, h, n, d_h), "flash.term_query_output")
        return Derivation(E, (once, Term((TWO, h, n, d_h, passes), "flash.term_keys_values")))
    once = Term((TWO, h, n, d_h), "flash.term_keys_values_once")
    again = Term((_THREE, h, n, d_h, passes), "flash.term_query_output_again")
    return Derivation(E, (once, again, Term((FOUR, h, n, passes), "flash.term_state")))


def plain_elements(square: Square) -> int:
    """Elements that plain attention moves."""
    return plain_derivation(square).whole


def tiled_elements(order: Order, square: Square, fast_elements: int) -> float:
    """Elements that tiled attention moves, by the formula, which cuts tiles into parts."""
    return float(tiled_derivation(order, square, fast_elements).value)


def traffic_ratio(order: Order, square: Square, fast_elements: int) -> float:
    """How many times less the tiled attention moves, by the formulas."""
    return plain_elements(square) / tiled_elements(order, square, fast_elements)


def visited(square: Square, tiles: Tiles, *, causal: bool = False) -> list[tuple[range, range]]:
    """The tiles in the order of the loops, as (query rows, key rows); the last ones may be smaller.

    With `causal`, a tile whose first key comes after its last query is left out.
    """
    queries, keys = (_cut(square.n_tokens, rows) for rows in (tiles.query_rows, tiles.key_rows))
    if tiles.order == "query_outer":
        pairs = [(rows, columns) for rows in queries for columns in keys]
    else:
        pairs = [(rows, columns) for columns in keys for rows in queries]
    return [(rows, columns) for rows, columns in pairs if not causal or columns.start < rows.stop]


def whole_tiles_elements(square: Square, tiles: Tiles, *, causal: bool = False) -> int:
    """Elements that whole tiles move: what a run counts."""
    d, h, n = square.head_dim, square.n_heads, square.n_tokens
    if tiles.order == "query_outer":
        again = sum(2 * d * len(columns) for _, columns in visited(square, tiles, causal=causal))
    else:
        again = sum((3 * d + 4) * len(rows) for rows, _ in visited(square, tiles, causal=causal))
    return h * (2 * n * d + again)


def plain_flops(square: Square) -> int:
    """FLOP of the two matrix products over the whole square: 4n²d_h a head."""
    return 4 * square.n_heads * square.n_tokens**2 * square.head_dim


def whole_tiles_flops(square: Square, tiles: Tiles, *, causal: bool = False) -> int:
    """FLOP of the two products in the tiles that are visited; without a mask the same as plain attention's.

    Rescaling by e^(m_old − m_new) is no matrix product and is not counted, as softmax is not.
    """
    pairs = sum(len(rows) * len(columns) for rows, columns in visited(square, tiles, causal=causal))
    return 4 * square.n_heads * square.head_dim * pairs


def plain_kept_elements(square: Square) -> int:
    """What plain attention keeps in slow memory besides Q, K, V: S and P together, and O: 2n² + n·d_h a head."""
    return square.n_heads * (2 * square.n_tokens**2 + square.n_tokens * square.head_dim)


def tiled_kept_elements(order: Order, square: Square) -> int:
    """What tiled attention keeps there besides Q, K, V: O, and in Algorithm 1 also l and m. It grows with n alone."""
    state = 2 if order == "key_outer" else 0
    return square.n_heads * square.n_tokens * (square.head_dim + state)


def _cut(n: int, rows: int) -> list[range]:
    return [range(begin, min(begin + rows, n)) for begin in range(0, n, rows)]
