"""Page 7's settings in the address: which question is open, and what was set for that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.questions.question import Given
from core.questions.registry import QUESTIONS
from pages.shared.setting import Setting, one_of


def dial_key(question: str, dial: str) -> str:
    """Where the session keeps a question's dial."""
    return f"questions_{question}_{dial}"


def question_settings(page: str) -> tuple[Setting, ...]:
    """The question, and the dials of all of them: those of the one that is open stand in the address, by name."""
    chosen = Setting(page, "q", "question", lambda: next(iter(QUESTIONS)), one_of(*QUESTIONS))
    dials = (
        Setting(
            page,
            dial.name,
            dial_key(question.key, dial.name),
            _first(question.given, dial.name),
            one_of(*dial.choices),
            only_with=(chosen, question.key),
        )
        for question in QUESTIONS.values()
        for dial in question.dials
    )
    return chosen, *dials


def _first(given: Given, name: str) -> Callable[[], Any]:
    return lambda: getattr(given, name)
