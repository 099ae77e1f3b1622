"""What the FlashAttention run found: the table of counts beside the formulas, what has to be said, the takeaway."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.derivation import Derivation
from core.estimate.flash import (
    ORDERS,
    Order,
    Square,
    passes_derivation,
    plain_derivation,
    plain_elements,
    plain_flops,
    plain_kept_elements,
    tiled_derivation,
    tiled_elements,
    tiled_kept_elements,
    traffic_ratio,
    visited,
    whole_tiles_elements,
    whole_tiles_flops,
)
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, gap_percent, milliseconds, scaled_bytes
from pages.shared.tools.race import times
from pages.shared.units import units

if TYPE_CHECKING:
    from core.lab.flash.comparison import FlashResult, Way

BYTES = 4
"""Of an element in the run."""
# The case of the paper's figure: GPT-2 medium on an A100.
PAPER, PAPER_ELEMENTS = Square(n_tokens=1024, head_dim=64), 98_304


def results_table(result: FlashResult) -> Html:
    """Plain and both tiled ways, side by side: counted, reckoned, measured."""
    from core.lab.flash.comparison import REPEATS, WAYS

    plain = moved(result, "plain")
    rows: list[tuple[str, Callable[[Way], str]]] = [
        (t("flash.row_tiles"), lambda way: _tile(result, way)),
        (t("flash.row_loaded"), lambda way: count(result.counted[way].loaded)),
        (t("flash.row_stored"), lambda way: count(result.counted[way].stored)),
        (t("flash.row_moved"), lambda way: count(moved(result, way))),
        (t("flash.row_whole"), lambda way: count(reckoned(result, way))),
        (t("flash.row_whole_gap"), lambda way: count(moved(result, way) - reckoned(result, way))),
        (t("flash.row_formula"), lambda way: _by_formula(result, way, gap=False)),
        (t("flash.row_formula_gap"), lambda way: _by_formula(result, way, gap=True)),
        (t("flash.row_less"), lambda way: times(plain / moved(result, way))),
        (t("flash.row_flops"), lambda way: count(result.counted[way].flops)),
        (t("flash.row_flops_formula"), lambda way: count(_flops(result, way))),
        (t("flash.row_kept"), lambda way: scaled_bytes(kept_bytes(result, way), units())),
        (t("flash.row_peak"), lambda way: scaled_bytes(result.peak_bytes[way], units())),
        (t("flash.row_seconds", repeats=REPEATS), lambda way: milliseconds(result.median_seconds(way))),
        (t("flash.row_difference"), lambda way: f"{result.counted[way].difference:.1e}"),
    ]
    heads = [t("flash.head_what"), *(t(f"flash.head_{way}") for way in WAYS)]
    return table(heads, [row(name, *(cell(way) for way in WAYS)) for name, cell in rows])


def moved(result: FlashResult, way: Way) -> int:
    """Elements loaded and stored, as counted."""
    return result.counted[way].loaded + result.counted[way].stored


def reckoned(result: FlashResult, way: Way) -> int:
    """The same by whole tiles."""
    if way == "plain":
        return plain_elements(result.square)
    return whole_tiles_elements(result.square, result.tiles[way], causal=result.causal)


def kept_bytes(result: FlashResult, way: Way) -> int:
    """What lies in slow memory besides Q, K, V, by formula."""
    kept = plain_kept_elements(result.square) if way == "plain" else tiled_kept_elements(way, result.square)
    return BYTES * kept


def _flops(result: FlashResult, way: Way) -> int:
    if way == "plain":
        return plain_flops(result.square)
    return whole_tiles_flops(result.square, result.tiles[way], causal=result.causal)


def _tile(result: FlashResult, way: Way) -> str:
    if way == "plain":
        return "–"
    n, tiles = result.square.n_tokens, result.tiles[way]
    return f"{count(min(n, tiles.query_rows))} × {count(min(n, tiles.key_rows))}"


def _by_formula(result: FlashResult, way: Way, *, gap: bool) -> str:
    if way != "plain" and result.causal:
        return t("flash.not_formula")
    value = plain_elements(result.square)
    if way != "plain":
        value = round(tiled_elements(way, result.square, result.fast_elements))
    return gap_percent(value, moved(result, way)) if gap else count(value)


def remarks(result: FlashResult) -> list[str]:
    """What has to be said for the numbers to be honest."""
    said = [_seconds(result), t("flash.kind_to_plain")]
    if result.causal:
        walked = [len(visited(result.square, result.tiles["query_outer"], causal=causal)) for causal in (True, False)]
        said.append(t("flash.causal_flops", skipped=count(walked[1] - walked[0]), tiles=count(walked[1])))
    said += [t("flash.rescaling"), t("flash.precision", bytes=BYTES), t("flash.scores_in_registers")]
    said.append(t("flash.filled", filled=count(result.counted["key_outer"].filled)))
    ratio = times(traffic_ratio("query_outer", PAPER, PAPER_ELEMENTS))
    said += [t("flash.orders"), t("flash.published", ratio=ratio, elements=count(PAPER_ELEMENTS))]
    if result.n_disturbed:
        said.append(t("flash.disturbed", points=count(result.n_disturbed)))
    return said


def _seconds(result: FlashResult) -> str:
    tiled, plain, fused = (result.median_seconds(name) for name in ("query_outer", "plain", "fused"))
    if moved(result, "query_outer") >= moved(result, "plain"):
        key = "flash.seconds_fewer_not"
    else:
        key = "flash.seconds_faster" if tiled < plain else "flash.seconds_slower"
    values = {"tiled": milliseconds(tiled), "plain": milliseconds(plain), "fused": milliseconds(fused)}
    return t(key, device=result.device.upper(), **values)


def formulas(square: Square, fast_elements: int) -> None:
    """The formulas of all ways with the dials' values in them, to be opened."""
    with st.expander(t("flash.formulas")), st.container(key="flash_formulas"):
        _formula("formula_plain", plain_derivation(square))
        for order in ORDERS:
            _formula(f"formula_{order}", tiled_derivation(order, square, fast_elements))
            _formula("formula_passes", passes_derivation(order, square, fast_elements))
            st.html(note(t(f"flash.rows_{order}")))
        st.html(note(t("flash.whole_tiles")))


def _formula(name: str, derivation: Derivation) -> None:
    st.html(note(t(f"flash.{name}")))
    in_symbols, in_values = st.columns(2)
    in_symbols.latex(derivation.formula(t))
    in_values.latex(derivation.substituted())


def takeaway_text(result: FlashResult, order: Order, kib: int) -> str:
    """What the run showed, of the order that the picture plays."""
    plain, tiled = moved(result, "plain"), moved(result, order)
    key = "takeaway_more" if tiled >= plain else "takeaway_causal" if result.causal else "takeaway"
    return t(
        f"flash.{key}",
        n=count(result.square.n_tokens),
        d=result.square.head_dim,
        kib=kib,
        difference=f"{result.counted[order].difference:.1e}",
        moved=count(tiled),
        plain=count(plain),
        ratio=times(plain / tiled),
        kept=scaled_bytes(result.peak_bytes[order], units()),
        plain_kept=scaled_bytes(result.peak_bytes["plain"], units()),
    )
