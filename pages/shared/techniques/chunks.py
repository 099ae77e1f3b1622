"""Chunked prefill for real: one prompt in one pass and in chunks, what stays equal, and what it costs and buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques_shared import chunk_chart
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, gap_percent, milliseconds
from pages.shared.techniques.bench import Bench, measured
from pages.shared.techniques.compared import (
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
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.chunked import ChunkedPrefill, ChunkPoint, ChunkResult

SHOWN_CHUNK = 32
"""The chunk size that stands against the one pass."""


def show(bench: Bench) -> None:
    """The guess, the prompt in one pass and in chunks, the formulas for a large model, what follows."""
    predict_term("chunks")

    def make() -> ChunkedPrefill:
        from core.lab.chunked import ChunkedPrefill

        return ChunkedPrefill(bench.model, bench.ids)

    result: ChunkResult | None = measured("chunks", bench, "", make, lambda found: bool(found.points))
    if result is not None:
        _show_result(result)
    show_reckoned("chunks")
    if result is not None:
        takeaway(_takeaway(result))


def _shown(result: ChunkResult) -> ChunkPoint:
    return next(point for point in result.points if point.chunk >= SHOWN_CHUNK)


def _show_result(result: ChunkResult) -> None:
    st.html(note(t("terms.chunks_pair", n=count(result.n_tokens), chunk=count(_shown(result).chunk))))
    st.html(_pair(result))
    st.html(note(t("terms.note_chunks_rectangle")))
    rows = [
        row(
            count(point.chunk),
            count(point.n_passes),
            milliseconds(point.longest_s),
            milliseconds(point.seconds),
            as_bytes(point.bytes_read),
            gap_percent(point.bytes_read, point.bytes_read_formula),
            written_difference(point.logit_difference),
            written_difference(point.kv_difference),
        )
        for point in result.points
    ]
    heads = ("chunk", "passes", "longest", "all_passes", "read", "gap", "logit", "cached_off")
    st.html(table([t(f"terms.head_{name}") for name in heads], rows))
    show_drawn("terms_chunks_times", Html(chunk_chart(result, language())))
    said = "chunks_same" if result.has_same_token else "chunks_parted"
    most, cached = map(written_difference, (result.largest_difference, result.largest_kv_difference))
    st.html(note(t(f"terms.{said}", most=most, cached=cached)))
    note_disturbed(result.n_disturbed)


def _pair(result: ChunkResult) -> Html:
    """One pass against chunks."""
    from core.lab.before_after import Both

    whole, cut = result.whole, _shown(result)
    return before_after(
        [
            Line("flops_masked", Both(whole.flops, cut.flops), as_flops),
            Line("flops_multiplied", Both(whole.flops_multiplied, cut.flops_multiplied), as_flops),
            bytes_line(
                "read_passes",
                Both(whole.bytes_read, cut.bytes_read),
                Both(whole.bytes_read_formula, cut.bytes_read_formula),
            ),
            bytes_line(
                "kv_bytes", Both(whole.kv_bytes, cut.kv_bytes), Both(whole.kv_bytes_formula, cut.kv_bytes_formula)
            ),
            Line("passes", Both(whole.n_passes, cut.n_passes), lambda value: count(int(value))),
            Line("seconds_passes", Both(whole.seconds, cut.seconds), milliseconds),
            Line("longest", Both(whole.longest_s, cut.longest_s), milliseconds),
        ]
    )


def _takeaway(result: ChunkResult) -> str:
    whole, cut = result.whole, _shown(result)
    return t(
        "terms.takeaway_chunks_longer" if cut.seconds >= whole.seconds else "terms.takeaway_chunks_shorter",
        chunk=count(cut.chunk),
        n=count(result.n_tokens),
        longest=milliseconds(cut.longest_s),
        whole=milliseconds(whole.longest_s),
        passes=count(cut.n_passes),
        read=written_ratio(cut.bytes_read / whole.bytes_read),
        seconds=written_ratio(cut.seconds / whole.seconds),
        multiplied=written_ratio(cut.flops_multiplied / whole.flops_multiplied),
        most=written_difference(result.largest_difference),
    )
