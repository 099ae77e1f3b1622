"""A server's sweep on the page: its charts with the floor under them, its law, an earlier one, and the takeaway."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.lab.remote.under import Assumed, floors_under
from pages.shared.drawn import show_drawn
from pages.shared.figures.lab_server import Floors, first_chart, step_chart, tokens_chart
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.lab.server.ask import GUESSES
from pages.shared.lab.server.assume import assume, bytes_per_token
from pages.shared.lab.server.hand_in import hand_in
from pages.shared.lab.server.opened import ServerSweep
from pages.shared.lab.server.said import (
    cache_text,
    earlier_text,
    floor_sentences,
    impossible,
    law_sentences,
    ratios,
    takeaway_text,
    unusual,
)
from pages.shared.lab.server.tables import earlier_table, floor_table, kv_table, law_table, points_table
from pages.shared.language import language, t
from pages.shared.numbers import count
from pages.shared.tools.job import heading, takeaway
from pages.shared.trouble import notice


def show_found(sweep: ServerSweep, earlier: ServerSweep | None, guessed: int | None) -> None:
    """All of one file. `earlier`: what it is compared with; `guessed`: how many times the floor a step would take."""
    found, spoken = sweep.found, language()
    with st.container(border=True, key="lab_server_floor"):
        heading(t("server.floor"), t("server.floor_question"))
        assumed = assume(sweep)
        floors = floors_under(assumed, found.cells) if assumed is not None else {}
        _floor(sweep, floors, assumed)
    with st.container(border=True, key="lab_server_points"):
        heading(t("server.measured"), t("server.measured_note"))
        before = earlier.found if earlier is not None else None
        charts = (step_chart(found, floors, before, spoken), first_chart(found, floors, before, spoken))
        drawn = join(Html(chart) for chart in (*charts, tokens_chart(found, spoken)) if chart)
        show_drawn("lab_server_charts", fill('<div class="tbt-lab-charts">{drawn}</div>', drawn=drawn))
        _list(unusual(found, spoken))
        with st.expander(t("lab.points_table")):
            st.html(points_table(found, spoken).on_page(spoken))
        if not any(cell.tokens_per_s for cell in found.cells):
            st.html(note(t("server.never_together")))
    _more(sweep, earlier, assumed)
    _end(sweep, floors, guessed)
    hand_in(sweep, assumed, guessed)


def _floor(sweep: ServerSweep, floors: Floors, assumed: Assumed | None) -> None:
    spoken = language()
    if assumed is None:
        return
    wrong = impossible(sweep.found, floors, spoken)
    if wrong:
        notice(wrong, "refusal")
    _list(floor_sentences(sweep.found, floors, assumed, spoken))
    with st.expander(t("server.floor_table")):
        st.html(floor_table(sweep.found, floors, spoken).on_page(spoken))


def _more(sweep: ServerSweep, earlier: ServerSweep | None, assumed: Assumed | None) -> None:
    """The cache as the server counts it, the law, and the other file, each where there is something to say."""
    found, spoken = sweep.found, language()
    cache = kv_table(found)
    if cache is not None:
        with _part("cache"):
            _list(filter(None, [cache_text(found, spoken)]))
            with st.expander(t("server.kv_table")):
                st.html(cache.on_page(spoken))
    if found.laws:
        kv = bytes_per_token(sweep, assumed)
        with _part("law"):
            st.html(law_table(found, kv, spoken).on_page(spoken))
            _list(law_sentences(found, kv, assumed, spoken))
    if earlier is not None:
        both = earlier_table(found, earlier.found)
        if both is None:
            st.html(note(t("server.earlier_nowhere")))
            return
        with _part("earlier"):
            st.html(both.on_page(spoken))
            said = earlier_text(found, earlier.found, spoken)
            if said:
                takeaway(said)


def _end(sweep: ServerSweep, floors: Floors, guessed: int | None) -> None:
    said = takeaway_text(sweep.found, floors, language())
    own = sorted(one.against.ratio for one in ratios(sweep.found, floors) if one.kind == "step")
    if guessed is not None and own and own[0] >= 1:
        middle = own[len(own) // 2]
        nearest = min(GUESSES, key=lambda guess: max(guess / middle, middle / guess))
        key = "lab.guess_right" if guessed == nearest else "lab.guess_wrong"
        said += ("" if language() == "zh" else " ") + t(key, guess=t("server.guess_times", times=count(guessed)))
    takeaway(said)


def _part(name: str) -> DeltaGenerator:
    part = st.container(border=True, key=f"lab_server_{name}")
    with part:
        heading(t(f"server.{name}"), t(f"server.{name}_note"))
    return part


def _list(texts: Iterable[str]) -> None:
    items = [fill("<li>{text}</li>", text=text) for text in texts]
    if items:
        st.html(fill('<ul class="tbt-lab-remarks">{items}</ul>', items=join(items)))
