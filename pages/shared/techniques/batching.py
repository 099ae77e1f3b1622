"""Batching for real: the same texts one at a time and B together, what a token costs, and that it is the same token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques_shared import speed_chart
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, gap_percent, milliseconds
from pages.shared.techniques.bench import Bench, measured
from pages.shared.techniques.compared import (
    NONE,
    Line,
    as_bytes,
    as_flops,
    before_after,
    bytes_line,
    note_disturbed,
    written_difference,
)
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.reckoned import predict_term, show_reckoned
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.batched import BatchedDecoding, BatchResult
    from core.model.load import LanguageModel


def show(bench: Bench) -> None:
    """The guess, the texts alone and together, the formulas for a large model, what follows."""
    predict_term("batching")

    def make() -> BatchedDecoding:
        from core.lab.batched import BatchedDecoding

        return BatchedDecoding(bench.model, bench.ids)

    result: BatchResult | None = measured("batching", bench, "", make, lambda found: bool(found.points))
    if result is not None:
        _show_result(bench.model, result)
    show_reckoned("batching")
    if result is not None:
        takeaway(_takeaway(result))


def _show_result(model: LanguageModel, result: BatchResult) -> None:
    most = result.points[-1]
    st.html(note(t("terms.batching_pair", batch=count(most.batch), n=count(most.n_tokens))))
    st.html(_pair(result))
    st.html(_sizes(result))
    show_drawn("terms_batching_speed", Html(speed_chart(result, language())))
    if result.speedup(most) < result.by_bytes(most):
        st.html(note(t("terms.note_batching_computing", batch=count(most.batch))))
    st.html(_texts(model, result))
    note_disturbed(result.n_disturbed)


def _pair(result: BatchResult) -> Html:
    """One at a time against the largest batch."""
    from core.lab.before_after import Both

    one, most = result.points[0], result.points[-1]
    return before_after(
        [
            bytes_line(
                "read_token",
                Both(one.bytes_per_token, most.bytes_per_token),
                Both(one.bytes_read_formula, most.bytes_read_formula / most.batch),
            ),
            bytes_line("kv_all", Both(one.kv_bytes, most.kv_bytes), Both(one.kv_bytes_formula, most.kv_bytes_formula)),
            Line(
                "flops_token",
                Both(one.flops, most.flops / most.batch),
                as_flops,
                Both(one.flops_formula, most.flops_formula / most.batch),
            ),
            Line("decode_seconds", Both(one.seconds, most.seconds), milliseconds),
            Line("token_seconds", Both(one.seconds_per_token, most.seconds_per_token), milliseconds),
        ]
    )


def _sizes(result: BatchResult) -> Html:
    """Every batch size."""
    rows = [
        row(
            count(point.batch),
            milliseconds(point.seconds),
            milliseconds(point.seconds_per_token),
            as_bytes(point.bytes_per_token),
            as_bytes(point.kv_bytes),
            gap_percent(point.kv_bytes, point.kv_bytes_formula),
            f"{result.by_bytes(point):.2f}×",
            f"{result.speedup(point):.2f}×",
            written_difference(point.kv_difference),
        )
        for point in result.points
    ]
    heads = ("batch", "step", "token_seconds", "read_token", "kv_measured", "gap", "by_bytes", "speed", "cached_off")
    return table([t(f"terms.head_{name}") for name in heads], rows)


def _texts(model: LanguageModel, result: BatchResult) -> Html:
    """Every sequence: how it begins, what it wrote alone, and in which batches it wrote the same."""
    alone, *others = result.points
    rows = []
    for number, (first, ids) in enumerate(zip(result.first_ids, alone.token_ids, strict=True)):
        same = [NONE if number >= point.batch else "=" if point.token_ids[number] == ids else "≠" for point in others]
        rows.append(row(token_text(model.tokenizer, first), model.tokenizer.decode([first, *ids]), *same))
    heads = [t("terms.head_begins"), t("terms.head_alone"), *(f"B = {count(point.batch)}" for point in others)]
    return table(heads, rows)


def _takeaway(result: BatchResult) -> str:
    most = result.points[-1]
    is_same = all(map(result.has_same_tokens, result.points))
    return t(
        f"terms.takeaway_batching_{'same' if is_same else 'parted'}",
        batch=count(most.batch),
        read=written_ratio(most.bytes_per_token / result.points[0].bytes_per_token),
        by_bytes=written_ratio(result.by_bytes(most)),
        speed=written_ratio(result.speedup(most)),
        seconds=written_ratio(most.seconds / result.points[0].seconds),
    )
