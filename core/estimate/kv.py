"""Memory of the KV cache, exact for every way of keeping it: heads shared or not, windows, latents, block formats.

A layer keeps for each position it can still see one row of keys and one of values, n_kv·d_h numbers each; a latent
layer one row of r_kv + d_rope numbers in all; a layer without attention nothing. Figures are in bytes. Lengths and
batch may be numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

from core.estimate.derivation import TWO, Derivation, Factor, Term
from core.estimate.dtypes import BF16_KV, Dtype, KvDtypes
from core.estimate.elementwise import Numbers, exact, smaller
from core.estimate.shape import LatentAttention, ModelShape
from core.estimate.symbols import GroupSymbols, group_symbols, merged

M_KV, B_KV = "M_{\\mathrm{KV}}", "b_{\\mathrm{kv}}"


class Row(NamedTuple):
    """What one position leaves in all layers of a group, of one kind ("keys", "values" or "latents").

    `factors` multiply to the bytes; `over` divides them (block formats: 34/32 of a byte).
    """

    kind: str
    factors: tuple[Factor, ...]
    over: int

    @property
    def n_bytes(self) -> int:
        """Bytes for one position of one sequence."""
        return prod([int(factor.amount) for factor in self.factors]) // self.over


class Rate(NamedTuple):
    """Bytes a position of one sequence takes in a group of layers, and how far back these layers look."""

    n_bytes: int
    window: int | None


def kv_bytes(
    shape: ModelShape,
    *,
    n_tokens: Numbers,
    batch: Numbers = 1,
    dtypes: KvDtypes = BF16_KV,
    page_tokens: int = 1,
    ranks: int = 1,
) -> Numbers:
    """M_KV with n positions in the cache; a layer with window W keeps min(n, W) of them.

    Args:
        page_tokens: memory is reserved in pages of so many positions, whole ones for every sequence and layer.
        ranks: on one of so many devices that share the KV heads out; with more devices than heads these are copied,
            and a latent is the same on every device.
    """
    n, batch = exact(n_tokens), exact(batch)
    held = ((rate, n if rate.window is None else smaller(n, rate.window)) for rate in kv_rates(shape, dtypes, ranks))
    return batch * sum(rate.n_bytes * (-(-kept // page_tokens) * page_tokens) for rate, kept in held)


def kv_bytes_per_token(shape: ModelShape, dtypes: KvDtypes = BF16_KV) -> int | None:
    """What one more token adds for one sequence, or None where windows make that depend on n."""
    rates = kv_rates(shape, dtypes)
    return None if any(rate.window is not None for rate in rates) else sum(rate.n_bytes for rate in rates)


@lru_cache(maxsize=512)
def kv_rates(shape: ModelShape, dtypes: KvDtypes, ranks: int = 1) -> tuple[Rate, ...]:
    """Bytes per position, group by group; groups that cache nothing are left out."""
    groups = [symbols for symbols in group_symbols(shape) if symbols.group.attention is not None]
    return tuple(
        Rate(sum(row.n_bytes for row in kv_rows(symbols, dtypes, ranks)), _window(symbols)) for symbols in groups
    )


def kv_rows(symbols: GroupSymbols, dtypes: KvDtypes, ranks: int = 1) -> tuple[Row, ...]:
    """The rows that one position leaves in a group with attention."""
    attention, L = symbols.group.attention, symbols["L"]
    assert attention is not None
    if isinstance(attention, LatentAttention):
        return (_row("latents", (L, symbols["latent"]), dtypes.k),)
    n_kv = symbols["n_kv"]
    if ranks > 1:
        n_kv = Factor("\\lceil n_{\\mathrm{kv}}/N \\rceil", -(-attention.n_kv_heads // ranks), n_kv.subscript)
    keys = _row("keys", (L, n_kv, symbols["d_h"]), dtypes.k)
    values = _row("values", (L, n_kv, symbols.factors.get("d_v", symbols["d_h"])), dtypes.v)
    return keys, values


def _row(kind: str, factors: tuple[Factor, ...], dtype: Dtype) -> Row:
    """A layer's row of a position is stored whole: its blocks run over all its heads."""
    width = prod([int(factor.amount) for factor in factors[1:]])
    if dtype.block == 1:
        return Row(kind, (*factors, Factor(B_KV, dtype.block_bytes)), 1)
    if width % dtype.block == 0:
        return Row(kind, (*factors, Factor("", dtype.block_bytes)), dtype.block)
    blocks = Factor("\\lceil w/\\beta \\rceil", -(-width // dtype.block))
    return Row(kind, (factors[0], blocks, Factor("", dtype.block_bytes)), 1)


def _window(symbols: GroupSymbols) -> int | None:
    attention = symbols.group.attention
    return attention.window if attention is not None else None


def kv_derivation(
    shape: ModelShape, *, n_tokens: int, batch: int = 1, dtypes: KvDtypes = BF16_KV, ranks: int = 1
) -> Derivation:
    """The chapter's M_KV = 2·B·L·n_kv·n·d_h·b_kv, group by group where layers differ."""
    by_divisor: dict[int, list[tuple[str, tuple[Factor, ...]]]] = {}
    for symbols in group_symbols(shape):
        if symbols.group.attention is not None:
            for row, name, factors in _products(symbols, Factor("B", batch), n_tokens, kv_rows(symbols, dtypes, ranks)):
                by_divisor.setdefault(row.over, []).append((name, factors))
    terms = tuple(
        Term(factors, name, over=over)
        for over, products in by_divisor.items()
        for name, factors in merged(shape, products)
    )
    is_the_chapters = len(terms) == 1 and terms[0].factors[0] == TWO and terms[0].over == 1
    return Derivation(M_KV, terms, "B", source="chapter" if is_the_chapters else "cache")


def _products(
    symbols: GroupSymbols, B: Factor, n_tokens: int, rows: tuple[Row, ...]
) -> Iterator[tuple[Row, str, tuple[Factor, ...]]]:
    """A group's rows times positions, in the chapter's order; keys and values as one where they are of one size."""
    window = _window(symbols)
    n = Factor("n", n_tokens) if window is None or window >= n_tokens else Factor("W", window)
    are_equal = len(rows) == 2 and rows[0][1:] == rows[1][1:]
    for row in rows[:1] if are_equal else rows:
        factors = *([TWO] if are_equal else []), B, *row.factors[:2], n, *row.factors[2:]
        yield row, symbols.label if are_equal else row.kind, factors
