"""What a learner writes into a report: the question and the conclusion, as they are at the moment the report is made.

A field sends what was typed when it is left, and pressing the report's button is what leaves it. Streamlit then makes
the file in a thread of its own, beside the run of the page that hears of the text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st

from pages.shared.language import t

LONGEST_QUESTION, LONGEST_TEXT = 300, 4000
ON_ITS_WAY_SECONDS = 0.5
"""How long a text may take from the browser to the session."""


@dataclass
class OwnText:
    """A learner's words, changed by whichever run of the page hears of them."""

    question: str = ""
    conclusion: str = ""

    def newest(self) -> tuple[str, str]:
        """Question and conclusion, what is just being sent included."""
        time.sleep(ON_ITS_WAY_SECONDS)
        return self.question, self.conclusion


def own_text(name: str) -> OwnText:
    """Draws the two fields; `name` tells those of one sweep from another's."""
    text: OwnText = st.session_state.setdefault(f"lab_text_{name}", OwnText())
    _fields(name, text)
    return text


@st.fragment
def _fields(name: str, text: OwnText) -> None:
    """Runs by itself when one of them is left. A run of all around them would put new files behind the buttons, and
    the press that made the visitor leave the field would ask for one that is there no more."""
    question, conclusion = f"lab_question_{name}", f"lab_conclusion_{name}"

    def heard() -> None:
        """Called before anything is drawn, which takes longer than a file should wait."""
        text.question, text.conclusion = (st.session_state.get(key) or "" for key in (question, conclusion))

    st.text_input(t("lab.question"), max_chars=LONGEST_QUESTION, key=question, persist_state="session", on_change=heard)
    st.text_area(t("lab.conclusion"), max_chars=LONGEST_TEXT, key=conclusion, persist_state="session", on_change=heard)
    heard()
