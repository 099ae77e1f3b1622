"""Sweep context and batch on the live model, and meet the formula: how do KV bytes and a step's time grow?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.lab.phases import show_phases
from pages.shared.lab.plan import show_plan
from pages.shared.lab.results import show_results
from pages.shared.lab.server.panel import show_server
from pages.shared.lab.visitor import meet_browser
from pages.shared.link import write_link
from pages.shared.settings import LAB
from pages.shared.waiting import smollm2_notice

ASSETS = Path(__file__).resolve().parent.parent / "assets"

for sheet in ("costs.css", "tools.css", "lab.css"):
    st.html(ASSETS / sheet)
smollm2_notice()
meet_browser()
with st.container(key="lab_plan_part"):
    show_plan()
with st.container(key="lab_results_part"):
    show_results()
show_phases()
with st.container(key="lab_server_whole"):
    show_server()
write_link(LAB)
