"""What is said while a model loads, and when one is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.language import t
from pages.shared.resources import shelf
from pages.shared.shelf import REAL_MODEL, SMALL_MODEL
from pages.shared.trouble import notice, refuse

if TYPE_CHECKING:
    from pages.shared.controls import Controls

LOOK_AGAIN_SECONDS = 0.5


def still_loading() -> bool:
    """While our own models load: says which, and draws the page again when they are there."""
    if not shelf().loading:
        return False
    _say_until_loaded()
    return True


@st.fragment(run_every=LOOK_AGAIN_SECONDS)
def _say_until_loaded() -> None:
    if not shelf().loading:
        st.rerun()
    notice(t("loading", models=", ".join(shelf().loading)))


def smollm2_notice() -> None:
    """One sentence when the real model is missing: why, and who serves instead."""
    problem = shelf().problem(REAL_MODEL)
    if problem is None:
        return
    refuse(problem)
    if shelf().problem(SMALL_MODEL) is None:
        notice(t("tiny_serves"))


def model_notice(asked: Controls) -> None:
    """What stands between the visitor and the chosen model: it is missing, refused, or an operator's that loads."""
    smollm2_notice()
    if asked.problem is not None:
        refuse(asked.problem)
    elif asked.model is None:
        _say_until_there(asked.name)


@st.fragment(run_every=LOOK_AGAIN_SECONDS)
def _say_until_there(name: str) -> None:
    if shelf().ask(name).done():
        st.rerun()
    notice(t("loading", models=name))
