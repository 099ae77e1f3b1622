"""A question that is measured: its experiment runs on the live model in the engine's exclusive slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from core.questions.question import Outcome, Question
from pages.shared.drawn import show_drawn
from pages.shared.html_parts import note
from pages.shared.language import language, t
from pages.shared.prompts import examples
from pages.shared.questions.progress import Answered, Pledge, came_out
from pages.shared.resources import shelf
from pages.shared.trouble import notice, refuse
from pages.shared.waiting import still_loading

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from pages.shared.visit import Visit


def measured(question: Question, pledge: Pledge) -> Answered | None:
    """A button, then progress, then what came out; None until then."""
    assert question.live is not None
    if still_loading():
        return None
    problem = shelf().problem(pledge.given.live)
    if problem is not None:
        refuse(problem)
        return None
    # Only now: the models are there, and so is torch, which takes seconds to import.
    from pages.shared.tools.job import watched

    tool, visit = f"question_{question.key}", _visit()
    place = st.empty()
    if place.button(t("questions.run", model=pledge.given.live), key=f"questions_run_{question.key}", type="primary"):
        _begin(tool, visit, question, pledge)
    job = watched(tool, visit)
    if job is None or job.asked.get("pledge") is not pledge:
        st.html(note(t("questions.not_run")))
        return None
    outcome: Outcome | None = job.result()
    if outcome is None or job.is_under_way:
        show_drawn("questions_waits", note(t("questions.waits")), is_under_way=job.is_under_way)
        if not job.is_under_way and job.refusal is None:
            notice(t("questions.stopped"))
        return None
    place.empty()
    return came_out(pledge, outcome)


def _begin(tool: str, visit: Visit, question: Question, pledge: Pledge) -> None:
    from pages.shared.tools.job import begin

    def make() -> tuple[Measurement, Callable[[], Outcome | None]]:
        assert question.live is not None
        name = pledge.given.live
        model = shelf().ask(name).result()
        ids = model.prompt_ids("\n".join(examples(name, language())))
        made = question.live(model, ids, pledge.given)

        def found() -> Outcome | None:
            outcome, points = made.outcome(), made.measurement.done
            return outcome and replace(outcome, n_disturbed=sum(bool(point.disturbed) for point in points))

        return made.measurement, found

    begin(tool, visit, make, pledge=pledge)


def _visit() -> Visit:
    """Whose the page's measurements are: no run of page 1 ends them."""
    from pages.shared.visit import Visit

    visit: Visit = st.session_state.setdefault("questions_visit", Visit())
    return visit
