"""What a student takes home: the sweep's CSV as it was written, and the report with their own conclusion."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.lab.sweep.report import SweepReport
from core.refusal import Refusal
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.lab.own_text import own_text
from pages.shared.lab.shown import Shown
from pages.shared.lab.start import go_on
from pages.shared.lab.visitor import store, visitor_key
from pages.shared.language import language, t
from pages.shared.trouble import refuse

_REFUSED = "lab_again_refused"


def hand_in(shown: Shown) -> None:
    """Question and conclusion in the learner's words, and the downloads."""
    sweep = shown.sweep
    if sweep is None:
        return
    with st.container(border=True, key="lab_hand_in"):
        st.html(fill('<h2 class="tbt-h2">{title}</h2>{text}', title=t("lab.hand_in"), text=note(t("lab.hand_in_note"))))
        text = own_text(sweep.name)
        spoken, first, name = language(), t("lab.question_first"), f"sweep-{sweep.name}"

        def report() -> str:
            question, conclusion = text.newest()
            return _report(replace(shown.report, question=question or first, conclusion=conclusion), spoken)

        with st.container(horizontal=True, key="lab_downloads"):
            st.download_button(
                t("lab.download_csv"),
                sweep.path.read_bytes,
                f"{name}.csv",
                "text/csv",
                key="lab_csv",
                on_click="ignore",
            )
            st.download_button(
                t("lab.download_report"),
                report,
                f"{name}.html",
                "text/html",
                key="lab_report",
                on_click="ignore",
                type="primary",
            )
            if not sweep.is_under_way:
                _again(shown)


def _report(report: SweepReport, spoken: str) -> str:
    # Only when it is asked for: a page that draws every second need not know how a report is written.
    from pages.shared.lab.report import report_html

    return report_html(report, spoken)


def _again(shown: Shown) -> None:
    """Go on where it was stopped, or delete it."""
    sweep = shown.sweep
    assert sweep is not None
    if shown.found.n_missing and st.button(t("lab.go_on", n=shown.found.n_missing), key="lab_go_on"):
        st.session_state[_REFUSED] = None
        try:
            go_on(visitor_key(), sweep)
        except Refusal as refusal:
            st.session_state[_REFUSED] = refusal
        st.rerun()
    st.button(t("lab.forget"), key="lab_forget", on_click=store().forget, args=(visitor_key(), sweep))
    if st.session_state.get(_REFUSED) is not None:
        refuse(st.session_state[_REFUSED])
