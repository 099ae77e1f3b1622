"""A small experiment beside the sweep: prefill against n, and one token with the cache against one without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from core.refusal import Refusal
from pages.shared.drawn import show_drawn
from pages.shared.figures.lab_phases import phases_chart
from pages.shared.guess import guess
from pages.shared.html import Html
from pages.shared.html_parts import note
from pages.shared.lab.asked import numbers
from pages.shared.lab.visitor import visitor_key
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds
from pages.shared.resources import shelf
from pages.shared.tools.job import NoRun, begin, heading, takeaway, watched

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.phase_times import PhaseTimes

TOOL = "lab_phases"
REPEATS = 3
GUESSES = (2, 20, 200, 2000)


@st.fragment(key="lab_phases_part")
def show_phases() -> None:
    """From the question to the takeaway; the plan's contexts, on the plan's model where it is a loaded one."""
    with st.container(border=True, key="lab_phases"):
        heading(t("lab.phases"), t("lab.phases_question"))
        try:
            contexts = numbers(st.session_state["lab_contexts"], "contexts")
        except Refusal:  # the plan above says why
            return
        n = max(contexts)
        named = {times: t("lab.phases_times", times=count(times)) for times in GUESSES}
        said = guess(t("lab.phases_guess", n=count(n)), named, f"lab_phases_guess_{n}")
        models = {model.name: model for model in shelf().loaded}
        name = st.session_state["lab_model"] if st.session_state["lab_model"] in models else next(iter(models))
        owner = NoRun(f"{visitor_key()} {name} {contexts}")

        def make() -> tuple[Measurement, Callable[[], tuple[PhaseTimes, ...]]]:
            # Only now: torch takes seconds to import.
            from core.lab.phase_times import PhaseSweep

            sweep = PhaseSweep(models[name], contexts, REPEATS)
            return sweep.measurement(), lambda: sweep.result

        if st.button(t("lab.phases_start", model=name), key="lab_phases_start"):
            begin(TOOL, owner, make)
        job = watched(TOOL, owner)
        if job is None:
            return
        found: tuple[PhaseTimes, ...] = job.result()
        drawing = Html(phases_chart(found, language(), milliseconds)) if found else note(t("lab.phases_none"))
        show_drawn("lab_phases_chart", drawing, is_under_way=job.is_under_way)
        if found and not job.is_under_way:
            takeaway(_takeaway(found, said))


def _takeaway(found: tuple[PhaseTimes, ...], said: int | None) -> str:
    first, last = found[0], found[-1]
    ratio = last.whole_s / last.cached_s
    told = t(
        "lab.phases_takeaway",
        first=count(first.context),
        last=count(last.context),
        grown=f"{last.context / first.context:.1f}",
        whole=f"{last.whole_s / first.whole_s:.1f}",
        cached=f"{last.cached_s / first.cached_s:.2f}",
        ratio=f"{ratio:,.0f}",
        flops=f"{last.whole_flops / last.cached_flops:,.0f}",
    )
    if said is None:
        return told
    nearest = min(GUESSES, key=lambda guess: max(guess / ratio, ratio / guess))
    key = "lab.guess_right" if said == nearest else "lab.guess_wrong"
    return f"{told} {t(key, guess=t('lab.phases_times', times=count(said)))}"
