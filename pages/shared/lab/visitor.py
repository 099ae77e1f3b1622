"""Whose sweeps a session shows: a name that nobody can guess, which the browser remembers beyond a refresh."""

from __future__ import annotations

from functools import cache
from re import fullmatch

import streamlit as st

from pages.shared.component import component
from pages.shared.keep import new_key
from pages.shared.lab.kept import SweepStore, cache_folder

_KEY, _COMPONENT = "lab_visitor", "lab_remembered"


@cache
def store() -> SweepStore:
    """The sweeps of all visitors of this process."""
    return SweepStore(cache_folder())


def visitor_key() -> str:
    """This visitor's."""
    return str(st.session_state.setdefault(_KEY, new_key()))


def meet_browser() -> None:
    """Tells the browser the name, or is told the one that it remembers."""
    component("tbt_remembered", "remembered")(
        key=_COMPONENT, data={"slot": "lab", "name": visitor_key()}, on_remembered_change=_is_known
    )


def _is_known() -> None:
    take_name((st.session_state.get(_COMPONENT) or {}).get("remembered"))


def take_name(name: object) -> None:
    """Goes by the name that the browser remembers, unless this session has begun a sweep of its own."""
    has_own = any(store().of(visitor_key()))
    if isinstance(name, str) and fullmatch(r"[\w-]{22}", name) and not has_own:
        st.session_state[_KEY] = name
