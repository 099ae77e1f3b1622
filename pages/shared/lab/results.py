"""What was measured: live while it runs, then against the prediction, the formulas, and other sweeps."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.lab.sweep.report import is_tested
from pages.shared.html import fill, join
from pages.shared.html_parts import note
from pages.shared.lab.drop import OWN, drop_field
from pages.shared.lab.hand_in import hand_in
from pages.shared.lab.heat import KINDS, heatmap
from pages.shared.lab.laws import (
    fit_remarks,
    fit_table,
    kv_table,
    points_table,
    predictions_table,
    takeaway_text,
)
from pages.shared.lab.opened import opened_file, show_opened
from pages.shared.lab.pictures import CURVES, show_kv, show_latency, show_residuals
from pages.shared.lab.running import show_running
from pages.shared.lab.shown import Shown, shown_sweep
from pages.shared.lab.versus import common_cell, versus_table, versus_text
from pages.shared.lab.visitor import store, visitor_key
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.tools.job import takeaway
from pages.shared.trouble import refuse

_WAS_RUNNING = "lab_was_running"


@st.fragment(key="lab_results")
def show_results() -> None:
    """All below the plan; drawn again by itself while a sweep runs."""
    running = store().under_way(visitor_key())
    if running is None and st.session_state.pop(_WAS_RUNNING, False):
        st.rerun()  # the plan can begin another
    if running is not None:
        st.session_state[_WAS_RUNNING] = True
        with st.container(border=True, key="lab_running"):
            show_running(running)
    kept = [shown_sweep(sweep) for sweep in store().of(visitor_key())]
    opened = opened_file()
    every = [*kept, *([opened] if opened else [])]
    shown, others = _choice(every)
    if shown is not None:
        if shown.sweep is not None and shown.sweep.refusal is not None:
            refuse(shown.sweep.refusal)
        if shown.found.cells:
            _found(shown, [other for other in others if other.found.cells], is_running=running is not None)
        elif running is None:
            st.html(note(t("lab.no_rows")))
        hand_in(shown)
    else:
        st.html(fill('<p class="tbt-empty">{text}</p>', text=t("lab.none")))
    with st.container(border=True, key="lab_opening"), st.container(key=OWN, gap="xsmall"):
        drop_field(OWN, t("lab.open"))
        show_opened()


def _choice(every: Sequence[Shown]) -> tuple[Shown | None, list[Shown]]:
    """Which sweep is looked at, and which are laid over it: by themselves those that were measured together."""
    if not every:
        return None, []
    by_name = {shown.sweep.name if shown.sweep else "file": shown for shown in every}
    newest = next(iter(by_name))
    known = st.session_state.get("lab_newest")
    if st.session_state.get("lab_shown") not in by_name or known != newest:
        st.session_state["lab_shown"], st.session_state["lab_newest"] = newest, newest
    titles = {name: one.title for name, one in by_name.items()}
    with st.container(key="lab_choice"):
        name = st.selectbox(
            t("lab.shown"), list(by_name), format_func=titles.__getitem__, key="lab_shown", filter_mode=None
        )
        shown = by_name[name]
        together = shown.sweep.compared if shown.sweep else ""
        rest = [other for other in by_name if other != name]
        fellows = [
            other for other in rest if together and (sweep := by_name[other].sweep) and sweep.compared == together
        ]
        if not rest:
            return shown, []
        chosen = st.multiselect(
            t("lab.overlay"),
            rest,
            fellows,
            format_func=titles.__getitem__,
            key=f"lab_overlay_{name}",
            placeholder=t("lab.overlay_none"),
            select_all=False,
        )
    return shown, [by_name[other] for other in chosen if other in by_name]


def _found(shown: Shown, others: list[Shown], *, is_running: bool) -> None:
    with st.container(border=True, key="lab_latency"):
        _heading("latency")
        with st.container(horizontal=True, key="lab_latency_choices"):
            batches = st.segmented_control(
                t("lab.show_batches"),
                shown.batches,
                default=shown.batches[-1:] if others else shown.batches,  # one of each is enough to compare
                selection_mode="multi",
                format_func=lambda batch: f"B={count(batch)}",
                key=f"lab_batches_{'_'.join(map(str, shown.batches))}_{bool(others)}",
            )
            curves = st.segmented_control(
                t("lab.show_curves"),
                CURVES,
                default=["fit"],
                selection_mode="multi",
                format_func={name: t(f"lab.show_{name}") for name in CURVES}.__getitem__,
                key="lab_curves",
            )
        show_latency(shown, others, curves, batches or shown.batches)
        if shown.report.plan.fill == "fast":
            st.html(note(t("lab.filled_fast")))
        told = predictions_table(shown)
        if told is not None:
            st.html(told)
        if {"bytes", "flops"} & set(curves):
            st.html(note(t("lab.curves_note")))
        with st.expander(t("lab.points_table")):
            st.html(points_table(shown))
    if others:
        _versus([shown, *others])
    if is_running:
        return
    with st.container(key="lab_columns"):
        with st.container(border=True, key="lab_bytes"):
            _heading("bytes")
            show_kv(shown)
            with st.expander(t("lab.kv_table")):
                st.html(kv_table(shown))
        with st.container(border=True, key="lab_heat"):
            _heading("heat")
            kind = st.segmented_control(
                t("lab.heat_kind"),
                list(KINDS),
                default="step",
                format_func={name: t(f"lab.heat_{name}") for name in KINDS}.__getitem__,
                key="lab_heat_kind",
                required=True,
            )
            st.html(heatmap(shown, kind or "step"))
        if shown.found.laws:
            with st.container(border=True, key="lab_law"):
                _heading("law")
                st.html(fit_table(shown))
                remarks = join(fill("<li>{text}</li>", text=text) for text in fit_remarks(shown))
                st.html(fill('<ul class="tbt-lab-remarks">{remarks}</ul>', remarks=remarks))
            if shown.found.joint is None or is_tested(shown.found.joint):  # else nothing is left by its making
                with st.container(border=True, key="lab_left"):
                    _heading("residuals")
                    show_residuals(shown)
    takeaway(takeaway_text(shown))


def _versus(all_shown: list[Shown]) -> None:
    place = common_cell(all_shown)
    with st.container(border=True, key="lab_versus"):
        _heading("versus")
        if place is None:
            st.html(note(t("lab.versus_none")))
            return
        st.html(note(t("lab.versus_place", n=count(place[0]), batch=count(place[1]))))
        st.html(versus_table(all_shown, place))
        takeaway(versus_text(all_shown, place))


def _heading(name: str) -> None:
    text = note(t(f"lab.{name}_note"))
    st.html(fill('<h2 class="tbt-h2">{title}</h2>{text}', title=t(f"lab.{name}"), text=text))
