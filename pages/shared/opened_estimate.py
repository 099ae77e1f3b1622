"""The dialog behind a figure of an estimate: its formula, the formula with the values in it, the result, the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.estimate import attention_roof, batching, fit, floors, flops, kv, roofline, score_table, weights
from core.estimate.derivation import Derivation
from core.estimate.derivations import derivations
from core.estimate.estimate import Estimate
from core.estimate.where import where_derivations
from pages.shared.costs import opened_figure
from pages.shared.html import Html, fill, join
from pages.shared.numbers import gap_percent
from pages.shared.opened_parts import (
    CSS,
    SYMBOL_KEYS,
    WIDTH,
    amounts,
    block,
    code_block,
    compared_row,
    formulas,
    legend_row,
    signed,
    source_line,
    word,
)
from pages.shared.source_code import sources

# Figure → the functions that compute it.
CODE: dict[str, tuple[Callable[..., Any], ...]] = {
    "params": (weights.parameters, weights.weights),
    "weight_bytes": (weights.weight_bytes, weights.Weight.bytes_of),
    "kv_bytes": (kv.kv_bytes, kv.kv_rows),
    "kv_bytes_per_token": (kv.kv_bytes_per_token, kv.kv_rows),
    "flops_chapter": (flops.decode_chapter_derivation, flops.prefill_chapter_derivation, flops.chapter_params),
    "flops_exact": (flops.layers_flops, flops.attended_pairs, flops.head_flops),
    "bytes": (weights.weight_bytes_read, weights.expected_distinct_experts),
    "floor": (floors.floor, floors.Floor.seconds),
    "roof.ridge": (roofline.roof_of, roofline.Roof.ridge),
    "batching.ceiling": (batching.ceiling,),
    "batching.batch": (batching.compute_bound_batch,),
    "batching.limit_full": (batching.wanted_when_full, batching.context_limit),
    "batching.limit": (batching.context_limit, batching.line_at),
    "attention.roof": (attention_roof.attention_roof,),
    "scores.outweighs_at": (score_table.outweighs_at, score_table.table_traffic),
    "scores.table_bytes": (score_table.table_bytes,),
    "scores": (score_table.attention_intensity, score_table.attention_traffic),
    "fit": (fit.fit, fit.max_context, fit.max_batch),
}
# Two figures of one thing; the second is the reference.
COMPARED = {"decode.flops_chapter": "decode.flops_exact", "prefill.flops_chapter": "prefill.flops_exact"}
COMPARED |= {exact: chapter for chapter, exact in COMPARED.items()}


def show_what_was_clicked(made: Estimate) -> None:
    """Opens the figure whose card was just clicked, if one was."""
    figure = opened_figure()
    if figure is not None:
        show_estimate(figure, made)


def show_estimate(figure: str, made: Estimate) -> None:
    """Opens the dialog of a figure by its name in the command's JSON; one that cannot be opened is passed over."""
    found = derivations(made) | where_derivations(made)
    if figure in found:
        st.dialog(word(f"figure_{figure.replace('.', '_')}"), width=WIDTH)(_show)(figure, found)


def _show(figure: str, found: dict[str, Derivation]) -> None:
    derivation = found[figure]
    st.html(CSS)
    formulas(derivation, join([_legend(derivation), source_line(derivation)]))
    main, rounded = amounts(derivation.value, derivation.unit)
    st.html(
        block(
            fill(
                '<h3>{label}</h3><p class="tbt-opened-result">{main}{rounded}</p>{compared}',
                label=word("result"),
                main=main,
                rounded=fill("<small>{text}</small>", text=rounded) if rounded else Html(""),
                compared=_compared(figure, found),
            )
        )
    )
    with st.expander(word("code")):
        for source in sources(*_code(figure)):
            code_block(source)


def _legend(derivation: Derivation) -> Html:
    """What each symbol stands for, and its value."""
    whole = (factor for factor in derivation.factors if type(factor.value) is int)
    return fill("<dl>{rows}</dl>", rows=join({legend_row(factor, SYMBOL_KEYS): None for factor in whole}))


def _compared(figure: str, found: dict[str, Derivation]) -> Html:
    """Chapter and exact beside each other; a gap of zero is shown."""
    other = COMPARED.get(figure)
    if other is None:
        return Html("")
    chapter, exact = (found[name].whole for name in sorted((figure, other)))
    gap, unit = chapter - exact, found[figure].unit
    row = compared_row(
        other.replace(".", "_"),
        amounts(found[other].whole, unit)[0],
        f"{signed(gap, unit)} ({gap_percent(chapter, exact)})",
    )
    return fill("<h3>{label}</h3>{row}", label=word("compared"), row=row)


def _code(figure: str) -> tuple[Callable[..., Any], ...]:
    """By the figure's own name, or by the first word of CODE that stands in it."""
    if figure in CODE:
        return CODE[figure]
    return next(functions for name, functions in CODE.items() if name in figure)
