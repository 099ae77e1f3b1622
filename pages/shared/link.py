"""The settings that live in the address: a link reproduces the page.

A link is read once, when a session begins. From then on the visitor's values count and the address follows them, so
that the browser's *back*, which returns to an old address, takes nothing away from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import streamlit as st

from pages.shared.setting import Setting
from pages.shared.settings import ANY_PAGE, COST_PAGES, HOME, PAGE_1, SETTINGS, settle_costs

LONGEST_IN_LINK = 1000
"""Characters of a text that still goes into an address."""
_FIRST_RUN, _GIVEN, _JUST_SET = "first_run", "link_given", "settings_just_set"


def read_link(page: str) -> None:
    """Takes a page's settings from the address, in a session's first run. What makes no sense is ignored.

    The frame reads its own (ANY_PAGE) before it knows which page it is for. Home has none: what stands in its address
    is for whichever page comes next.
    """
    if page == ANY_PAGE and _FIRST_RUN not in st.session_state:
        st.session_state[_FIRST_RUN], st.session_state[_GIVEN] = True, {}
    elif page == ANY_PAGE or not is_first_run():
        return
    words = {name: word for name, word in st.query_params.to_dict().items() if len(word) <= LONGEST_IN_LINK}
    wanted = [setting for setting in SETTINGS if setting.page != ANY_PAGE] if page == HOME else _settings_of(page)
    given = _understood(wanted, words)
    st.session_state[_GIVEN] |= given
    _set(given)
    if page in (HOME, *COST_PAGES):
        settle_costs()


def is_first_run() -> bool:
    """Whether the first run of a session is under way, in which the frame's script writes the address."""
    return bool(st.session_state.get(_FIRST_RUN))


def first_run_ends() -> None:
    """From now on `write_link` writes it."""
    st.session_state[_FIRST_RUN] = False


def link_gave(key: str) -> bool:
    """Whether the link that this session began with says what st.session_state keeps under `key`."""
    return key in st.session_state.get(_GIVEN, {})


def link(page: str = PAGE_1) -> dict[str, str]:
    """What the address of a page should say: its settings that are not the default."""
    shown = (setting for setting in SETTINGS if setting.page in (ANY_PAGE, page) and setting.counts({}))
    words = {
        setting.name: setting.write(setting.value)
        for setting in shown
        if setting.always or setting.value != setting.default()
    }
    return {name: word for name, word in words.items() if len(word) <= LONGEST_IN_LINK}


def write_link(page: str = PAGE_1) -> None:
    """Makes the address say what `page` shows."""
    wanted = link(page)
    if not is_first_run() and st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def settings_now(page: str = PAGE_1) -> dict[str, str]:
    """All settings of a page by their names in the address, texts of any length, defaults as well."""
    return {setting.name: setting.write(setting.value) for setting in _settings_of(page)}


def apply_settings(values: Mapping[str, str], page: str = PAGE_1) -> None:
    """Sets what `settings_now` gave. To be called before the page's widgets are drawn: in a callback, say.

    Language and units are the frame's, which a page cannot draw again; the address keeps them.
    """
    _set(_understood(_settings_of(page), values))


def link_says_otherwise(values: Mapping[str, str], page: str = PAGE_1) -> bool:
    """Whether this session began with a link that names other values: then somebody wants to see those."""
    given = st.session_state.get(_GIVEN, {})
    return any(given.get(key, value) != value for key, value in _understood(_settings_of(page), values).items())


def fill_in_defaults(page: str = PAGE_1) -> dict[str, Any]:
    """Gives every setting of a page a value, so that its widgets find one. Returns the defaults of those that had one.

    A number field that is emptied returns to the default its widget was made with; but streamlit wants no default for
    a widget whose value was set in the same run.
    """
    just_set = st.session_state.pop(_JUST_SET, ())
    settings = _settings_of(page)
    had = {setting.key: setting.default() for setting in settings if setting.key in st.session_state}
    for setting in settings:
        st.session_state.setdefault(setting.key, setting.default())
    return {key: default for key, default in had.items() if key not in just_set}


def _settings_of(page: str) -> tuple[Setting, ...]:
    return tuple(setting for setting in SETTINGS if setting.page == page)


def _understood(settings: Iterable[Setting], words: Mapping[str, str]) -> dict[str, Any]:
    """Values by their keys in st.session_state, of those words that make sense."""
    values: dict[str, Any] = {}
    for setting in settings:
        if setting.counts(values):
            with suppress(ValueError, KeyError):
                values[setting.key] = setting.read(words[setting.name])
    return values


def _set(values: dict[str, Any]) -> None:
    for key, value in values.items():
        st.session_state[key] = value
    st.session_state[_JUST_SET] = (*st.session_state.get(_JUST_SET, ()), *values)
