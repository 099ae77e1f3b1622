"""Why does the first word take a while, and then words come one by one?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from core.engine.begun import Begun
from core.engine.trace import Trace
from pages.shared.batch import show_batch
from pages.shared.controls import Controls, controls
from pages.shared.derivations import is_figure
from pages.shared.link import settings_now, write_link
from pages.shared.opened import show_opened
from pages.shared.resources import keeper
from pages.shared.stage import LABORATORY, SETTING_EVENTS, Event, heard, show_stage
from pages.shared.stepping import carry_out, change_settings, current_visit, frame_for, slot_of
from pages.shared.tools.choose import show_tools
from pages.shared.tools.keepsake import opened_run, replay_frame
from pages.shared.waiting import model_notice

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@st.fragment(key=LABORATORY)
def laboratory() -> None:
    """Settings and the run they lead to: whatever is changed here, the frame around it stays."""
    change_settings(heard(*SETTING_EVENTS))
    with st.container(border=True, key="controls"):
        asked = controls(current_visit())
        model_notice(asked)
    show_batch(current_visit().tag)
    run(asked)


@st.fragment
def run(asked: Controls) -> None:
    """The run, as the stage draws it. A step draws nothing else: sending the settings again would double its time."""
    event, visit, opened = heard(), current_visit(), opened_run()
    carry_out(event, visit, asked)
    show_stage(replay_frame(opened, event) if opened else frame_for(event, visit, asked))
    keeper().hold(visit, slot_of(visit), settings_now())
    write_link()
    if event and event.action == "open" and opened and event.visit == opened.key:
        open_figure(event, opened.saved, opened.saved.trace, opened.saved.waiting_seconds)
    elif event and event.action == "open" and event.visit == visit.key:
        open_figure(event, visit.started, visit.trace, visit.waiting_seconds)
    show_tools(visit)


def open_figure(event: Event, begun: Begun | None, trace: Trace | None, waiting_seconds: float) -> None:
    """The formula behind a figure that was clicked, of the visitor's own run or of a saved one."""
    if begun and trace and is_figure(event.name, event.value, trace):
        show_opened(event.name, begun, trace, event.value, waiting_seconds)


for sheet in ("stage.css", "batch.css", "tools.css"):
    st.html(ASSETS / sheet)
laboratory()
