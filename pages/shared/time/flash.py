"""FlashAttention on the page: plain and tiled attention run here, their loads are counted, and their walk is played."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.flash import ORDERS, Order, Square, plain_elements, tiles_for, whole_tiles_elements
from pages.shared.drawn import show_drawn
from pages.shared.figures.flash import ELEMENTS_PER_KIB, ratio_chart, traffic_chart
from pages.shared.guess import guess, reveal
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import language, t
from pages.shared.numbers import count, scaled
from pages.shared.stepping import current_visit
from pages.shared.time.flash_found import formulas, remarks, results_table, takeaway_text
from pages.shared.time.flash_picture import show_picture
from pages.shared.tools.job import begin, heading, takeaway, watched
from pages.shared.tools.race import times

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.flash.comparison import FlashResult

TOOL = "flash"
CSS = Path(__file__).resolve().parents[3] / "assets" / "flash.css"
LEAST_N, MOST_N, FIRST_N = 16, 4096, 2048
HEAD_DIMS, FIRST_HEAD_DIM = (16, 32, 64, 128, 256), 64
MOST_HEADS, FIRST_HEADS = 16, 2
CARDS = {192: "A100", 256: "H100"}
"""KiB of L1 and shared memory of one streaming multiprocessor → the card (NVIDIA's white papers on Ampere, Hopper)."""
MEMORIES = (4, 16, 32, 64, 128, *CARDS)
FIRST_MEMORY = 192


@dataclass(frozen=True, slots=True)
class Asked:
    """Where the dials stand; `kib` is fast memory in KiB."""

    square: Square
    kib: int
    causal: bool

    @property
    def fast_elements(self) -> int:
        """M."""
        return self.kib * ELEMENTS_PER_KIB


@st.fragment(key="time_flash")
def show() -> None:
    """The panel from its question to its takeaway."""
    st.html(CSS)
    heading(t("flash.title"), t("flash.question"))
    with st.container(key="flash_guess_place"):
        place = st.container()
    with st.container(key="flash_dials"):
        asked, order = _dials()
    with place:
        _prediction(asked)
    if st.button(t("flash.start"), key="flash_start", type="primary"):
        _begin(asked)
    job = watched(TOOL, current_visit())
    if job is None:
        st.html(note(t("flash.none")))
    elif job.is_under_way:
        show_drawn("flash_waits", note(t("flash.none")), is_under_way=True)
    elif job.asked["asked"] != asked:
        st.html(note(t("flash.changed")))
    elif job.result().has_ended:
        _found(job.result(), asked, order)
    _charts(asked)
    formulas(asked.square, asked.fast_elements)
    if job is not None and not job.is_under_way and job.asked["asked"] == asked and job.result().has_ended:
        takeaway(takeaway_text(job.result(), order, asked.kib))


def _dials() -> tuple[Asked, Order]:
    n = st.number_input(t("flash.n"), LEAST_N, MOST_N, FIRST_N, step=64, key="flash_n", persist_state="session")
    head_dim = st.selectbox(
        t("flash.head_dim"), HEAD_DIMS, HEAD_DIMS.index(FIRST_HEAD_DIM), key="flash_head_dim", persist_state="session"
    )
    heads = st.number_input(t("flash.heads"), 1, MOST_HEADS, FIRST_HEADS, key="flash_heads", persist_state="session")
    memory_names = {
        kib: t("flash.memory_card", kib=kib, card=CARDS[kib]) if kib in CARDS else t("flash.memory_plain", kib=kib)
        for kib in MEMORIES
    }
    kib = st.selectbox(
        t("flash.memory"),
        MEMORIES,
        MEMORIES.index(FIRST_MEMORY),
        format_func=memory_names.__getitem__,
        key="flash_memory",
        persist_state="session",
    )
    order: Order = st.selectbox(
        t("flash.order"),
        ORDERS,
        format_func={order: t(f"flash.order_{order}") for order in ORDERS}.__getitem__,
        key="flash_order",
        persist_state="session",
    )
    causal = st.toggle(t("flash.causal"), key="flash_causal", persist_state="session")
    asked = Asked(Square(n_tokens=n, head_dim=head_dim, n_heads=heads), kib, causal)
    elements = count(asked.fast_elements)
    st.html(note(t("flash.memory_note", kib=kib, elements=elements, card_note=t("flash.memory_note_cards"))))
    return asked, order


def _prediction(asked: Asked) -> None:
    """How many times fewer elements are moved: guessed first, answered by whole tiles, as a run counts them."""
    square = asked.square
    tiles = tiles_for("query_outer", asked.fast_elements, square.head_dim)
    right = plain_elements(square) / whole_tiles_elements(square, tiles)
    wrong = (1.0, 4 * right, float(square.n_tokens))
    choices = sorted([right, *(value for value in wrong if not 0.6 < value / right < 1.6)])
    named = {index: _less(value) for index, value in enumerate(choices)}
    values = {"n": count(square.n_tokens), "d": square.head_dim, "kib": asked.kib}
    said = guess(t("flash.guess", **values), named, f"flash_guess_{square.n_tokens}_{square.head_dim}_{asked.kib}")
    if said is not None:
        key = "tools.guess_right" if choices[said] == right else "tools.guess_wrong"
        passes = -(-square.n_tokens // tiles.query_rows)
        reveal(t("flash.guess_why", verdict=t(key, answer=_less(right)), passes=count(passes)))


def _less(ratio: float) -> str:
    """A ratio as an answer; the sign stays where the language wants it."""
    if ratio == 1:
        return t("flash.guess_same")
    written = times(max(ratio, 1 / ratio))
    written = written if language() == "en" else written.removesuffix("×")
    return t("flash.guess_less" if ratio > 1 else "flash.guess_more", ratio=written)


def _begin(asked: Asked) -> None:
    # Only now: torch takes seconds to import.
    from core.lab.flash.comparison import FlashComparison
    from core.model.device import choose_device

    def make() -> tuple[Measurement, Callable[[], FlashResult]]:
        device = choose_device(os.environ.get("TBT_DEVICE") or None)
        comparison = FlashComparison(asked.square, asked.fast_elements, causal=asked.causal, device=device)
        return comparison.measurement(), lambda: comparison.result

    begin(TOOL, current_visit(), make, asked=asked)


def _found(result: FlashResult, asked: Asked, order: Order) -> None:
    st.html(fill('<h3 class="tbt-h2">{title}</h3>{text}', title=t("flash.picture"), text=note(t("flash.picture_note"))))
    show_picture(result, order)
    found = '<div class="tbt-flash-table" tabindex="0" role="region" aria-label="{name}">{table}</div>'
    st.html(fill(found, name=t("flash.head_what"), table=results_table(result)))
    told = join(fill("<li>{text}</li>", text=text) for text in remarks(result))
    st.html(fill('<ul class="tbt-flash-remarks">{told}</ul>', told=told))


def _charts(asked: Asked) -> None:
    with st.container(key="flash_charts"):
        show_drawn("flash_traffic", Html(traffic_chart(asked.square, asked.fast_elements, language(), scaled)))
        show_drawn("flash_ratio", Html(ratio_chart(asked.square, asked.kib, MEMORIES, language(), times)))
