"""A tool's measurement: begun in the exclusive slot, watched while the page stays alive, cancelled, its result kept.

What a session keeps is named by the tool and holds for one run of one visit: with another run it is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import streamlit as st

from core.refusal import Refusal
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.language import language, t
from pages.shared.numbers import count
from pages.shared.resources import engine
from pages.shared.tools.connection import this_connection

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement

Result = TypeVar("Result")
Of = tuple[str, int]
"""Whose a measurement is: the visit's key, and which of its runs."""
PATIENCE_SECONDS = 0.25
"""A click that is answered within this time shows its result and no progress."""


class Owner(Protocol):
    """Whose measurements are kept: a visit with its runs, or a panel that has neither."""

    @property
    def key(self) -> str: ...

    @property
    def run_number(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NoRun:
    """The owner of what depends on no run, but on what is asked: `key` names that, and another key forgets it."""

    key: str
    run_number: int = 0


@dataclass(eq=False)
class Job(Generic[Result]):
    """One measurement of one run. It is cancelled with the session that asked for it, or with its connection.

    `result` says what was measured by now. Once it is over, the result alone is kept: no tensor stays behind.
    """

    of: Of
    measurement: Measurement | None
    result: Callable[[], Result]
    refusal: Refusal | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.measurement is not None
        self._with_session = weakref.finalize(self, self.measurement.cancel)

    @property
    def is_under_way(self) -> bool:
        """Whether it was not over when it was last asked: what has been drawn since then is about that."""
        return self.measurement is not None

    def cancel(self) -> None:
        """Ends it behind the point under way."""
        if self.measurement is not None:
            self.measurement.cancel()

    def is_over(self, patience_seconds: float = 0.0) -> bool:
        """Whether nothing further will be measured. What was raised becomes the job's refusal."""
        if self.measurement is None:
            return True
        future = self.measurement.future
        wait([future], patience_seconds)
        if not future.done():
            return False
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self.refusal = error if isinstance(error, Refusal) else Refusal("engine.step_failed")
        found = self.result()
        self.result, self.measurement = lambda: found, None
        self._with_session.detach()
        return True


def begin(tool: str, visit: Owner, make: Callable[[], tuple[Measurement, Callable[[], Any]]], **asked: Any) -> None:
    """Puts what `make` gives (a measurement, and what says its result) in the line; what it refuses is kept to be said.

    `asked` is what the visitor asked for, beside the result.
    """
    state, of = st.session_state, _of(visit)
    state.pop(f"{tool}_refusal", None)
    before: Job[Any] | None = state.pop(f"{tool}_job", None)
    if before is not None:
        before.cancel()
    try:
        measurement, result = make()
    except Refusal as refusal:
        state[f"{tool}_refusal"] = of, refusal
    else:
        state[f"{tool}_job"] = job = Job(of, engine().measure(measurement), result, asked=asked)
        this_connection().hold(job)


def watched(tool: str, visit: Owner) -> Job[Any] | None:
    """What this visit measured, or measures, of the run it has now; None where nothing was asked for.

    A short wait comes first. While it is under way its progress is shown, with a way to end it.
    """
    of, refusal = st.session_state.get(f"{tool}_refusal", (None, None))
    refusal = refusal if of == _of(visit) else None
    job: Job[Any] | None = st.session_state.get(f"{tool}_job")
    if job is not None and job.of != _of(visit):
        job.cancel()
        job = None
    if job is not None:
        if not job.is_over(PATIENCE_SECONDS):
            this_connection().hold(job)
            _progress(tool, job)
        refusal = job.refusal
    if refusal is not None:
        st.html(fill('<p class="tbt-notice tbt-refusal" role="alert">{text}</p>', text=refusal.sentence(language())))
    return job


def _progress(tool: str, job: Job[Any]) -> None:
    measurement = job.measurement
    if measurement is None:
        return
    done, total = len(measurement.done), len(measurement.points)
    place = engine().place_of_measurement(measurement)
    said = t("tools.waits", place=count(place)) if place > 0 else t("tools.done", done=count(done), total=count(total))
    st.progress(done / total, text=said)
    st.button(t("tools.cancel"), key=f"{tool}_cancel", on_click=job.cancel)


def heading(title: str, question: str) -> None:
    """What a tool is called and what it shows, in one sentence."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>{text}', title=title, text=note(question)))


def needs_run() -> None:
    """What to press where there is no run yet."""
    st.html(fill('<p class="tbt-empty">{text}</p>', text=t("tools.needs_run")))


def takeaway(text: str) -> None:
    """The sentence that the numbers above it prove."""
    st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))


def _of(visit: Owner) -> Of:
    return visit.key, visit.run_number
