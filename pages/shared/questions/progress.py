"""What a visitor has committed to and what came out: kept for their session, over page changes, and nobody else's.

Beyond the session it is kept by `pages.shared.questions.kept`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from core.questions.judge import Verdict, judge
from core.questions.question import Answer, Given, Outcome
from core.questions.registry import QUESTIONS

_PLEDGES, _ANSWERED = "questions_pledges", "questions_answered"
SIGNS = {Verdict.CLOSE: "●", Verdict.NEAR: "◐", Verdict.FAR: "○", None: ""}
"""How a question stands, by shape and not by colour; nothing where it is not answered yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Pledge:
    """What was predicted, and with which settings."""

    key: str
    given: Given
    said: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A pledge and what came out."""

    pledge: Pledge
    outcome: Outcome

    @property
    def verdict(self) -> Verdict:
        """How near it came."""
        return judge(QUESTIONS[self.pledge.key].prediction, self.pledge.said, self.outcome.answer)


@dataclass(frozen=True, slots=True)
class Progress:
    """All of a visitor's, by question."""

    pledges: Mapping[str, Pledge]
    answered: Mapping[str, Answered]


def progress_now() -> Progress:
    """What there is by now; what happens later does not change it."""
    state = st.session_state
    return Progress(dict(state.get(_PLEDGES, {})), dict(state.get(_ANSWERED, {})))


def take_up(progress: Progress) -> list[Pledge]:
    """Goes on from there; what this session has said itself stands. Returns the pledges that were new to it."""
    own = progress_now()
    st.session_state[_PLEDGES] = {**progress.pledges, **own.pledges}
    st.session_state[_ANSWERED] = {**progress.answered, **own.answered}
    return [pledge for key, pledge in progress.pledges.items() if key not in own.pledges]


def pledge_for(key: str) -> Pledge | None:
    """The prediction that stands now."""
    pledges: dict[str, Pledge] = st.session_state.setdefault(_PLEDGES, {})
    return pledges.get(key)


def commit(pledge: Pledge) -> None:
    """From now on the prediction stands."""
    st.session_state.setdefault(_PLEDGES, {})[pledge.key] = pledge


def predict_again(key: str) -> None:
    """The prediction stands no more; what came of it stays in the list until another takes its place."""
    st.session_state.setdefault(_PLEDGES, {}).pop(key, None)


def came_out(pledge: Pledge, outcome: Outcome) -> Answered:
    """Notes what came out of a pledge."""
    answered = Answered(pledge, outcome)
    st.session_state.setdefault(_ANSWERED, {})[pledge.key] = answered
    return answered


def all_answered() -> dict[str, Answered]:
    """Everything that was answered, in the order of the questions."""
    found: dict[str, Answered] = st.session_state.get(_ANSWERED, {})
    return {key: found[key] for key in QUESTIONS if key in found}


def answered_for(pledge: Pledge) -> Answered | None:
    """What came of this very pledge; None as long as nothing did."""
    found = all_answered().get(pledge.key)
    return found if found is not None and found.pledge is pledge else None


def sign_of(key: str) -> str:
    """How a question stands, as one sign."""
    found = all_answered().get(key)
    return SIGNS[None if found is None else found.verdict]
