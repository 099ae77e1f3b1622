"""What a visitor sees when something went wrong: one sentence, never a traceback."""

from __future__ import annotations

import logging

import streamlit as st

from core.refusal import Refusal
from pages.shared.html import fill
from pages.shared.language import language, t


def notice(text: str, kind: str = "info") -> None:
    """One sentence, shown as written: nothing in it is markup. `kind` is "info", "stop" or "refusal"."""
    role = "alert" if kind == "refusal" else "status"
    st.html(fill('<p class="tbt-notice tbt-{kind}" role="{role}">{text}</p>', kind=kind, role=role, text=text))


def refuse(refusal: Refusal) -> None:
    """The reason and the remedy, in the visitor's language."""
    notice(refusal.sentence(language()), "refusal")


def apologise(error: Exception) -> bool:
    """For a page that failed: the log gets the traceback, the visitor a sentence. True: nothing more is shown."""
    logging.getLogger(__name__).error("A page failed.", exc_info=error)
    notice(t("page_failed"), "refusal")
    return True
