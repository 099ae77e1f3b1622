"""The visitor's language: what the link says at first, else the browser; the switch overrides both."""

from __future__ import annotations

import streamlit as st

from core.words import LANGUAGES, sentence

HTML_TAGS = {"zh": "zh-CN", "en": "en"}
_SWITCH = "language_switch"


def browser_language() -> str:
    """What the visitor's browser asks for: "zh" or "en"."""
    return "zh" if (st.context.locale or "zh").lower().startswith("zh") else "en"


def language() -> str:
    """The language of this session: "zh" or "en"."""
    return str(st.session_state.setdefault("language", browser_language()))


def t(key: str, **values: object) -> str:
    """A text in the visitor's language: of the pages' own catalogue, or of the one named before a dot."""
    return sentence(key if "." in key else f"pages.{key}", language(), **values)


def language_switch() -> None:
    """The switch between the two; each language is named in itself."""
    st.session_state[_SWITCH] = language()
    st.segmented_control(
        t("language_switch"),
        LANGUAGES,
        format_func=lambda code: sentence("pages.language_name", code),
        key=_SWITCH,
        on_change=_switched,
        required=True,
        label_visibility="collapsed",
    )


def _switched() -> None:
    st.session_state["language"] = st.session_state[_SWITCH]
