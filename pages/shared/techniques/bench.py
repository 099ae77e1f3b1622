"""What the experiments of page 6 stand on: a live model with a prompt, the button, progress, and a kept result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import streamlit as st

from core.questions.technique_terms import Mark
from pages.shared.drawn import show_drawn
from pages.shared.guess import guess, reveal
from pages.shared.html_parts import note
from pages.shared.language import language, t
from pages.shared.prompts import default_prompt, spoken
from pages.shared.resources import shelf
from pages.shared.tools.job import NoRun, begin, heading, watched
from pages.shared.trouble import notice, refuse
from pages.shared.waiting import still_loading

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.before_after import Asked
    from core.model.load import LanguageModel

Result = TypeVar("Result", covariant=True)
PROMPT_HEIGHT = 68
MOST_CHARACTERS = 2000


class Experiment(Protocol[Result]):
    """What every experiment of `core.lab` is: a measurement for the exclusive slot, and a result at any time."""

    @property
    def result(self) -> Result: ...

    def measurement(self) -> Measurement: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """The live model and what it is asked."""

    model: LanguageModel
    prompt: str

    @property
    def ids(self) -> list[int]:
        """The prompt as the model reads it. Raises Refusal for a prompt it cannot read."""
        return list(self.model.prompt_ids(self.prompt))

    @property
    def language(self) -> str:
        """The language the model is spoken to in, "zh" or "en"."""
        return spoken(self.model.name, language())

    def asked(self, n_new: int) -> Asked:
        """The prompt to be continued, and a held text in the model's language. Raises Refusal."""
        from core.lab.before_after import Asked, most_held
        from core.lab.quality import held_ids, text_for

        model = self.model
        held = held_ids(model, text_for(model, self.language), most_held(model.device))
        return Asked(self.ids, n_new, held, self.language)


def heading_of(name: str) -> None:
    """What the experiment is called, and what it shows."""
    heading(t(f"terms.name_{name}"), t(f"terms.about_{name}"))


def live_bench() -> Bench | None:
    """Draws the choice of model and prompt; None, with a word about it, while there is no model."""
    if still_loading():
        return None
    choices, state = shelf().choices, st.session_state
    if state["terms_live"] not in choices:
        state["terms_live"] = choices[0]
    with st.container(key="terms_bench"):
        name = str(st.selectbox(t("terms.live"), choices, key="terms_live", persist_state="session", filter_mode=None))
        # A default that nobody has touched follows the model and the language.
        if state["terms_prompt"] == state.get("terms_default_prompt"):
            state["terms_prompt"] = default_prompt(name, language())
        state["terms_default_prompt"] = default_prompt(name, language())
        prompt = st.text_area(
            t("terms.prompt"),
            key="terms_prompt",
            height=PROMPT_HEIGHT,
            max_chars=MOST_CHARACTERS,
            persist_state="session",
        )
    future, problem = shelf().ask(name), shelf().problem(name)
    if problem is not None:
        refuse(problem)
        return None
    if not future.done():
        show_drawn("terms_model_waits", note(t("loading", models=name)), is_under_way=True)
        return None
    return Bench(future.result(), prompt)


def predict(name: str, choices: Mapping[int, str], right: int | None, why: str, **asked: object) -> None:
    """Asks before anything is run; then says what is right, and why. `right` None: only the experiment will say."""
    said = guess(t(f"terms.guess_{name}", **asked), choices, f"terms_guess_{name}")
    if said is not None and right is None:
        reveal(t("terms.guess_kept"))
    elif said is not None and right is not None:
        verdict = t("tools.guess_right" if said == right else "tools.guess_wrong", answer=choices[right])
        reveal(f"{verdict} {why}")


def predict_mark(name: str, right: Mark, why: str, **asked: object) -> None:
    """A prediction about one term: less, as much, or more."""
    order = (Mark.DOWN, Mark.SAME, Mark.UP)
    choices = {index: t(f"terms.guess_{mark}") for index, mark in enumerate(order)}
    predict(name, choices, order.index(right), why, **asked)


def measured(
    name: str,
    bench: Bench,
    options: str,
    make: Callable[[], Experiment[Any]],
    is_whole: Callable[[Any], bool],
) -> Any | None:
    """The button, then progress, then what was measured; None until it is whole.

    `options` names what the experiment was asked beside model and prompt: with others the result is forgotten.
    """
    tool = f"terms_{name}"
    owner = NoRun(f"{bench.model.name}|{options}|{bench.prompt}")
    place = st.empty()
    if place.button(t("terms.run", model=bench.model.name), key=f"{tool}_start", type="primary"):

        def made() -> tuple[Measurement, Callable[[], Any]]:
            experiment = make()
            return experiment.measurement(), lambda: experiment.result

        begin(tool, owner, made)
    job = watched(tool, owner)
    if job is None:
        st.html(note(t("terms.not_run")))
        return None
    if job.is_under_way:
        show_drawn(f"{tool}_waits", note(t("terms.waits")), is_under_way=True)
        return None
    result = job.result()
    if is_whole(result):
        return result
    if job.refusal is None:
        notice(t("terms.stopped"))
    return None
