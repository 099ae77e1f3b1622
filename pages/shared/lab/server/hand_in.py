"""What a student takes home of a server's sweep: the report, with their own question and conclusion."""

from __future__ import annotations

import streamlit as st

from core.lab.remote.under import Assumed
from pages.shared.lab.own_text import own_text
from pages.shared.lab.server.opened import ServerSweep
from pages.shared.language import language, t
from pages.shared.tools.job import heading


def hand_in(sweep: ServerSweep, assumed: Assumed | None, guessed: int | None) -> None:
    """Question and conclusion in the learner's words, and the report."""
    with st.container(border=True, key="lab_server_hand_in"):
        heading(t("lab.hand_in"), t("server.hand_in_note"))
        text, spoken = own_text(f"server_{sweep.number}"), language()

        def made() -> str:
            question, conclusion = text.newest()
            # Only when it is asked for: a page need not know how a report is written.
            from pages.shared.lab.server.report import server_report_html

            return server_report_html(sweep, assumed, spoken, question=question, conclusion=conclusion, guessed=guessed)

        st.download_button(
            t("lab.download_report"),
            made,
            "server-sweep.html",
            "text/html",
            key="lab_server_report",
            on_click="ignore",
            type="primary",
        )
