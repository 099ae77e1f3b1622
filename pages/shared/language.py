"""The visitor's language: what the link says at first, else the browser; the switch overrides both."""

from __future__ import annotations

import streamlit as st

from core.words import LANGUAGES, sentence

HTML_TAGS = {"zh": "zh-CN", "en": "en"}
_SWITCH = "language_switch"


def language() -> str:
    """The language of this session: "zh" or "en"."""
    if "language" not in st.session_state:
        asked = st.query_params.get("lang", "")
        browser = (st.context.locale or "zh").lower()
        st.session_state["language"] = asked if asked in LANGUAGES else ("zh" if browser.startswith("zh") else "en")
    return str(st.session_state["language"])


def t(key: str, **values: object) -> str:
    """A text in the visitor's language: of the pages' own catalogue, or of the one named before a dot."""
    return sentence(key if "." in key else f"pages.{key}", language(), **values)


def language_switch() -> None:
    """The switch; the link remembers what it says, and the document says it to screen readers and fonts."""
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
    if st.query_params.get("lang") != language():
        st.query_params["lang"] = language()
    st.html(f"<script>document.documentElement.lang = '{HTML_TAGS[language()]}'</script>", unsafe_allow_javascript=True)


def _switched() -> None:
    st.session_state["language"] = st.session_state[_SWITCH]
