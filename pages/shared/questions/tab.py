"""A tab and the progress it had: after a refresh it says the name under which that was kept, and has it back."""

from __future__ import annotations

import streamlit as st

from core.questions.registry import QUESTIONS
from pages.shared.component import component
from pages.shared.keep import new_key
from pages.shared.link import link_gave
from pages.shared.question_settings import dial_key
from pages.shared.questions.kept import progress_keeper
from pages.shared.questions.progress import progress_now, take_up

_COMPONENT, _NAME, _HAS_ASKED = "questions_tab", "questions_name", "questions_has_asked"


@st.cache_resource(
    scope="session", on_release=lambda name: progress_keeper().left(name), show_spinner=False, max_entries=1
)
def _is_here(name: str) -> str:
    """Streamlit releases it the moment the connection is gone."""
    return name


def keep_progress() -> None:
    """Keeps how far this visitor is, and tells the tab under which name, or is told the one it had before."""
    name = _is_here(st.session_state.setdefault(_NAME, new_key()))
    progress_keeper().hold(name, progress_now())
    data = {"slot": "questions", "name": name, "asks": _HAS_ASKED not in st.session_state}
    component("tbt_remembered", "remembered")(key=_COMPONENT, data=data, on_remembered_change=_asked)


def _asked() -> None:
    take_back((st.session_state.get(_COMPONENT) or {}).get("remembered"))


def take_back(name: object) -> None:
    """Takes up what was kept under the name that the tab says, unchecked, from a browser. It counts once a session."""
    kept = progress_keeper().of(name) if isinstance(name, str) and _HAS_ASKED not in st.session_state else None
    st.session_state[_HAS_ASKED] = True
    for pledge in [] if kept is None else take_up(kept):
        for dial in QUESTIONS[pledge.key].dials:
            key = dial_key(pledge.key, dial.name)
            if not link_gave(key):
                st.session_state[key] = getattr(pledge.given, dial.name)
