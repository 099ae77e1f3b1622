"""Why does the first word take a while, and then words come one by one?"""

from __future__ import annotations

import streamlit as st

from pages.shared.controls import controls
from pages.shared.results import run_line, show_results
from pages.shared.stepping import buttons, carry_out_click, current_visit
from pages.shared.waiting import model_notice


@st.fragment
def laboratory() -> None:
    """Controls, the step they lead to, and what it left behind."""
    visit = current_visit()
    with st.container(border=True, key="controls"):
        asked = controls()
        model_notice(asked)
        carry_out_click(visit, asked)
        buttons(visit, asked, run_line(visit, asked))
    show_results(visit)


laboratory()
