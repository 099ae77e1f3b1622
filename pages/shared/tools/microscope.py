"""The microscope of page 1: a step and a layer, its operators to walk through, and both phases side by side."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.engine.dissection import Dissection, dissection
from core.engine.exclusive import Measurement, Point
from core.engine.layer_operators import layer_operators
from core.engine.microscope import Microscope
from core.engine.run import Run
from core.engine.steps import restore
from core.engine.trace import Phase, Trace
from core.refusal import Refusal
from pages.shared import stepping
from pages.shared.guess import guess, reveal
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.names import step_name
from pages.shared.numbers import count, milliseconds, scaled, scaled_bytes
from pages.shared.resources import engine
from pages.shared.started import Started
from pages.shared.tools.microscope_phases import both_phases, takeaway
from pages.shared.tools.microscope_tables import all_operators
from pages.shared.tools.microscope_walk import walk
from pages.shared.trouble import notice, refuse
from pages.shared.units import units
from pages.shared.visit import Visit

CSS = Path(__file__).resolve().parents[3] / "assets" / "microscope.css"
PATIENCE_SECONDS = 0.3
"""How often it is said again what is waited for."""
_STEP, _LAYER, _FOUND = "microscope_step", "microscope_layer", "microscope_found"
GUESSED, FEWEST_ROWS = "gate_up", 3
"""The product whose weights are guessed, and from how many rows on there is something to guess."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured last, and whether something else used the processor meanwhile."""

    dissections: tuple[Dissection, ...]
    disturbed: bool


def show(visit: Visit) -> None:
    """Draws the panel for a visitor's run, as it is now."""
    st.html(CSS)
    with st.container(key="microscope"):
        st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("microscope.title")))
        started, trace = visit.started, visit.trace
        if started is None or trace is None or not trace.steps:
            st.html(note(t("microscope.no_run")))
            return
        st.html(note(t("microscope.lead")))
        _panel(visit, started, trace)


def _panel(visit: Visit, started: Started, trace: Trace) -> None:
    guess_place = st.container(key="microscope_prediction")
    step, layer, asked = _choices(started, trace)
    shown = {index: _counted(started, trace, index, layer) for index in _compared(trace, step)}
    if asked:
        _measure(visit, started, trace, list(shown), layer)
    found: Found | None = st.session_state.get(_FOUND)
    for index, counted in shown.items():
        for timed in found.dissections if found else ():
            if timed.event is counted.event and timed.layer == layer:
                shown[index] = timed
    with guess_place:
        _prediction(started, shown[min(shown)])
    _said(shown[step], found)
    walk(shown[step])
    all_operators(shown[step])
    many, one = (shown.get(index) for index in _phases(trace, step))
    both_phases(many, one)
    if many is not None and one is not None:
        takeaway(many, one)


def _choices(started: Started, trace: Trace) -> tuple[int, int, bool]:
    """Step, layer, and whether they are to be measured. A step or layer that is gone gives way to the nearest."""
    state, last_step, last_layer = st.session_state, len(trace.steps) - 1, started.model.config.n_layers - 1
    state[_STEP] = min(state.get(_STEP, last_step), last_step)
    state[_LAYER] = min(state.get(_LAYER, last_layer // 2), last_layer)
    names = [step_name(index, event) for index, event in enumerate(trace.steps)]
    with st.container(key="microscope_choices"):
        step = st.selectbox(
            t("microscope.step"),
            range(last_step + 1),
            format_func=names.__getitem__,
            key=_STEP,
            persist_state="session",
            filter_mode=None,
        )
        layer = st.number_input(t("microscope.layer"), 0, last_layer, step=1, key=_LAYER, persist_state="session")
        asked = st.button(t("microscope.measure"), key="microscope_measure", help=t("microscope.measure_help"))
    return int(step), int(layer), asked


def _phases(trace: Trace, step: int) -> tuple[int, int]:
    """The steps that stand side by side: one over a prefix, one decode; −1 where there is none."""
    decodes = [index for index, event in enumerate(trace.steps) if event.phase is Phase.DECODE]
    prefixes = [index for index, event in enumerate(trace.steps) if event.phase is not Phase.DECODE]
    return (
        step if step in prefixes else next(iter(prefixes), -1),
        step if step in decodes else next(reversed(decodes), -1),
    )


def _compared(trace: Trace, step: int) -> list[int]:
    return sorted({step, *(index for index in _phases(trace, step) if index >= 0)})


def _counted(started: Started, trace: Trace, step: int, layer: int) -> Dissection:
    return dissection(started.model, started.config, trace.steps[step], step, layer)


def _prediction(started: Started, many: Dissection) -> None:
    """How much of a matrix a single row spares reading: guessed first, then counted."""
    made, model = many.made, started.model
    if made.n_new < FEWEST_ROWS:
        return
    single = made._replace(n_new=1, n_past=made.n_past + made.n_new, of_prefix=False)
    first, then = (one.cost for each in (made, single) for one in layer_operators(model, each) if one.name == GUESSED)
    rows = count(made.n_new)
    asked = t("microscope.guess", rows=rows, operator=t(f"microscope.op_{GUESSED}"))
    parts = {1: t("microscope.guess_same"), 2: t("microscope.guess_half"), 3: t("microscope.guess_part", rows=rows)}
    said = guess(asked, parts, "microscope_guess")
    if said is not None:
        right = {1: 1, 2: 2}.get(first.weights_read // then.weights_read, 3)
        why = t(
            "microscope.guess_why",
            rows=rows,
            bytes=scaled_bytes(then.weights_read, units()),
            prefill=f"{scaled(first.flops)}FLOP",
            decode=f"{scaled(then.flops)}FLOP",
        )
        reveal(f"{t('microscope.guess_right' if said == right else 'microscope.guess_wrong')} {why}")


def _said(shown: Dissection, found: Found | None) -> None:
    """How the operators were timed, and what one has to know of this step."""
    made = shown.made
    if len(shown.passes) > 1:
        said = {"passes": len(shown.passes), "number": shown.at + 1, "rows": made.n_new, "past": made.n_past}
        st.html(note(t("microscope.chunks", **{name: count(value) for name, value in said.items()})))
    if not shown.timings or found is None:
        st.html(note(t("microscope.not_measured")))
        return
    times = {
        "layer": shown.layer_seconds,
        "sum": shown.n_layers * shown.layer_seconds + shown.head_seconds,
        "whole": shown.pass_seconds,
        "step": shown.event.seconds,
    }
    text = t(
        "microscope.measured",
        readings=count(shown.n_readings),
        layers=count(shown.n_layers),
        **{name: milliseconds(seconds) for name, seconds in times.items()},
    )
    if shown.event.batch > 1:
        text = f"{text} {t('microscope.measured_alone', batch=count(shown.event.batch))}"
    st.html(note(text))
    if found.disturbed:
        notice(t("microscope.disturbed"))


def _measure(visit: Visit, started: Started, trace: Trace, steps: list[int], layer: int) -> None:
    """Times the layer in these steps, in the engine's exclusive slot, and keeps what was found."""
    place = st.empty()
    try:
        scopes = _scopes(visit, started, trace, steps, layer)
        points = [point for scope in scopes for point in scope.points]
        needed = sum(scope.n_bytes for scope in scopes)
        done = _wait(Measurement("microscope", points, n_bytes=needed), place)
    except Refusal as refusal:
        refuse(refusal)
        return
    finally:
        place.empty()
    measured = [point for point in done if isinstance(point.value, Dissection)]
    if len(measured) < len(steps):
        refuse(Refusal("engine.stopped"))
        return
    found = Found(tuple(point.value for point in measured), any(point.disturbed for point in measured))
    st.session_state[_FOUND] = found


def _scopes(visit: Visit, started: Started, trace: Trace, steps: list[int], layer: int) -> list[Microscope]:
    """Made where the run's cache may be read; of a run that keeps none, out of its record."""

    def made(run: Run) -> list[Microscope] | None:
        known = [run.steps[index] is trace.steps[index] for index in steps if index < len(run.steps)]
        return [Microscope(run, index, layer) for index in steps] if known == [True] * len(steps) else None

    scopes = visit.look(engine(), stepping.slot_of(visit), made).result()
    if scopes is None:
        recorded = restore(started.model, started.config, trace)
        scopes = [Microscope(recorded, index, layer) for index in steps]
    return scopes


def _wait(measurement: Measurement, place: DeltaGenerator) -> list[Point]:
    """Until it is done; who leaves meanwhile ends it behind the point under way."""
    engine().measure(measurement)
    try:
        while True:
            before = engine().place_of_measurement(measurement)
            key, said = ("in_line", {"place": count(before)}) if before > 0 else ("measuring", {})
            place.html(note(t(f"microscope.{key}", **said)))
            with suppress(TimeoutError):
                return measurement.future.result(PATIENCE_SECONDS)
    finally:
        measurement.cancel()
