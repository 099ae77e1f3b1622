"""The settings that live in the address: a link reproduces the page.

A link is read once, when a session begins. From then on the visitor's values count and the address follows them, so
that the browser's *back*, which returns to an old address, takes nothing away from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from re import fullmatch
from typing import Any

import streamlit as st

from core.words import LANGUAGES
from pages.shared.language import browser_language, language
from pages.shared.prompts import default_prompt
from pages.shared.resources import shelf
from pages.shared.shelf import REAL_MODEL, SMALL_MODEL
from pages.shared.units import UNITS

LONGEST_IN_LINK = 1000
"""Characters of a text that still goes into an address."""
MOST_NEW, MOST_TOP_K, MOST_TEMPERATURE, LARGEST_SEED = 1024, 1_000_000, 5.0, 2**31 - 1
SPEEDS = (1, 2, 4, 8, 16, 32)
"""Steps a second."""
ANY_PAGE, PAGE_1 = "", "prefill_and_decode"
_FIRST_RUN, _GIVEN, _JUST_SET = "first_run", "link_given", "settings_just_set"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what the address calls it, and where st.session_state keeps it.

    `read` takes the address's word for it and raises ValueError for anything but a sensible value; `write` is its
    reverse. Only the language is written even when it is the default: for another reader the default is another.
    """

    page: str
    name: str
    key: str
    default: Callable[[], Any]
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    always: bool = False

    @property
    def value(self) -> Any:
        """What it is now."""
        return st.session_state[self.key] if self.key in st.session_state else self.default()


def _one_of(*choices: Any) -> Callable[[str], Any]:
    by_name = {str(choice): choice for choice in choices}

    def read(word: str) -> Any:
        if word not in by_name:
            raise ValueError(word)
        return by_name[word]

    return read


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(word: str) -> int:
        if not fullmatch("[0-9]{1,10}", word) or not least <= int(word) <= most:
            raise ValueError(word)
        return int(word)

    return read


def _decimal(most: float) -> Callable[[str], float]:
    def read(word: str) -> float:
        if not fullmatch(r"[0-9]{1,3}(\.[0-9]{1,20})?", word) or float(word) > most:
            raise ValueError(word)
        return float(word)

    return read


def _switch(word: str) -> bool:
    return bool(_one_of(0, 1)(word))


def _model(word: str) -> str:
    return str(_one_of(REAL_MODEL, SMALL_MODEL, *shelf().choices)(word))


def _first_model() -> str:
    models = shelf()
    return REAL_MODEL if REAL_MODEL in models.loading else models.choices[0]


def _plain(value: float) -> str:
    """A decimal without exponent and without superfluous zeros, exact: 0.7, 1."""
    digits = format(Decimal(repr(float(value))), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _as_digit(value: bool) -> str:
    return str(int(value))


def _first_prompt() -> str:
    return default_prompt(st.session_state.get("model") or _first_model(), language())


# A prompt's default depends on the model, so the model stands before it.
SETTINGS = (
    Setting(ANY_PAGE, "lang", "language", browser_language, _one_of(*LANGUAGES), always=True),
    Setting(ANY_PAGE, "units", "units", lambda: UNITS[0], _one_of(*UNITS)),
    Setting(PAGE_1, "model", "model", _first_model, _model),
    Setting(PAGE_1, "chat", "chat_template", lambda: True, _switch, _as_digit),
    Setting(PAGE_1, "system", "system_prompt", str, str),
    Setting(PAGE_1, "cache", "use_cache", lambda: True, _switch, _as_digit),
    Setting(PAGE_1, "temp", "temperature", float, _decimal(MOST_TEMPERATURE), _plain),
    Setting(PAGE_1, "topk", "top_k", int, _whole(0, MOST_TOP_K)),
    Setting(PAGE_1, "topp", "top_p", lambda: 1.0, _decimal(1.0), _plain),
    Setting(PAGE_1, "seed", "seed", int, _whole(0, LARGEST_SEED)),
    Setting(PAGE_1, "max", "max_new", lambda: 64, _whole(1, MOST_NEW)),
    Setting(PAGE_1, "speed", "speed", lambda: 4, _one_of(*SPEEDS)),
    Setting(PAGE_1, "prompt", "prompt", _first_prompt, str),
)


def read_link() -> None:
    """Takes the settings from the address, once, when a session begins. What makes no sense is ignored."""
    if _FIRST_RUN in st.session_state:
        return
    st.session_state[_FIRST_RUN] = True
    words = {name: word for name, word in st.query_params.to_dict().items() if len(word) <= LONGEST_IN_LINK}
    given = _understood(SETTINGS, words)
    st.session_state[_GIVEN] = given
    _set(given)


def is_first_run() -> bool:
    """Whether the first run of a session is under way, in which the frame's script writes the address."""
    return bool(st.session_state.get(_FIRST_RUN))


def first_run_ends() -> None:
    """From now on `write_link` writes it."""
    st.session_state[_FIRST_RUN] = False


def link(page: str = PAGE_1) -> dict[str, str]:
    """What the address of a page should say: its settings that are not the default."""
    shown = (setting for setting in SETTINGS if setting.page in (ANY_PAGE, page))
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


def _understood(settings: tuple[Setting, ...], words: Mapping[str, str]) -> dict[str, Any]:
    """Values by their keys in st.session_state, of those words that make sense."""
    values = {}
    for setting in settings:
        with suppress(ValueError, KeyError):
            values[setting.key] = setting.read(words[setting.name])
    return values


def _set(values: dict[str, Any]) -> None:
    for key, value in values.items():
        st.session_state[key] = value
    st.session_state[_JUST_SET] = (*st.session_state.get(_JUST_SET, ()), *values)
