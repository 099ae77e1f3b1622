"""From events to steps: the visitor's own run, what a click does to it, and what the stage is told afterwards."""

from __future__ import annotations

import logging
from dataclasses import replace

import streamlit as st

from core.engine.prefix import chunk_for
from core.engine.trace import Stop, StopKind
from core.model.load import LanguageModel
from pages.shared import wire
from pages.shared.controls import Controls
from pages.shared.facts import machine_line
from pages.shared.language import language, t
from pages.shared.link import apply_settings, link_says_otherwise
from pages.shared.numbers import count
from pages.shared.resources import engine, keeper, limits, metrics
from pages.shared.settings import SPEEDS
from pages.shared.stage import KEY, WHATEVER, Event
from pages.shared.started import Slot, Started
from pages.shared.units import units
from pages.shared.visit import Visit

# A step that takes longer is shown as under way, and the stage asks for it again: other controls answer meanwhile.
PATIENCE_SECONDS = 0.8


def _gone(place: tuple[str, Slot]) -> None:
    key, slot = place
    slot.release()
    keeper().left(key, slot)


@st.cache_resource(scope="session", on_release=_gone, show_spinner=False, max_entries=4)
def _place_of(visit_key: str) -> tuple[str, Slot]:
    return visit_key, Slot()


def slot_of(visit: Visit) -> Slot:
    """Where this visitor's run lies. Streamlit releases it the moment the connection is gone."""
    return _place_of(visit.key)[1]


def current_visit() -> Visit:
    """This session's visit; nobody else's."""
    if "visit" not in st.session_state:
        st.session_state["visit"] = Visit()
    visit: Visit = st.session_state["visit"]
    return visit


def change_settings(event: Event | None) -> None:
    """Carries out what changes a setting: before the widgets are made, as Streamlit wants it."""
    visit = current_visit()
    if event is None:
        return
    if event.action == "next_turn" and event.visit == visit.key and visit.next_turn(_meant(event, visit).seen):
        st.session_state["prompt"] = ""  # for the next message
    if event.action == "resume" and visit.version == 0:
        kept = keeper().claim(event.name)  # a refreshed or duplicated tab gets its run and settings back
        if kept is not None:
            keeper().gave_way(visit.key)
            st.session_state["visit"], settings = kept
            if not link_says_otherwise(settings):
                apply_settings(settings)


def carry_out(event: Event | None, visit: Visit, asked: Controls) -> None:
    """Hands what was clicked to the engine, and waits a moment, so that the answer to a click shows its step."""
    slot = slot_of(visit)
    if event is not None and event.visit == visit.key:
        event = _meant(event, visit)
        if event.action == "prefill" and asked.model is not None:
            visit.prefill(engine(), slot, _started(asked.model, asked), event.seen, limits())
        elif event.action == "decode":
            visit.decode(engine(), slot, event.seen)
        elif event.action == "step_back":
            visit.step_back(engine(), slot, event.seen)
        elif event.action == "reset":
            visit.reset(engine(), slot)
    if event is not None and event.action == "speed" and event.value in SPEEDS:
        st.session_state["speed"] = event.value
    visit.settle(PATIENCE_SECONDS)


def _meant(event: Event, visit: Visit) -> Event:
    """Ends a stream of steps; a click into it means the run with the step that was under way."""
    visit.halt()
    return replace(event, seen=visit.version) if event.seen == WHATEVER else event


def frame_for(event: Event | None, visit: Visit, asked: Controls) -> bytes:
    """What the stage needs to draw this visit: the run's steps that it does not have yet, and what can be pressed."""
    visit.n_answers += 1
    _note_refusal(visit)
    header = {
        "stage": KEY,
        # No answer is like the one before: Streamlit keeps to itself what it takes for no news.
        "answer": visit.n_answers,
        "visit": visit.key,
        "run": visit.run_number,
        "version": visit.version,
        "language": language(),
        "units": units(),
        "speed": st.session_state["speed"],
        "speeds": SPEEDS,
        "busy": visit.activity,
        "can": _can(visit, asked),
        "notice": _notice(visit),
        "line": _line(visit, asked),
    }
    started, trace = visit.started, visit.trace
    if started is None or trace is None:
        return wire.pack(header | {"start": 0, "total": 0, "steps": [], "facts": None})
    start = min(_arrived(event, visit), len(trace.steps))
    return wire.run_frame(header, visit, started, trace, start)


def _arrived(event: Event | None, visit: Visit) -> int:
    """How many steps of this run the browser said it has; what is asked without an event goes by its last word."""
    if event is not None and event.visit == visit.key:
        visit.arrived = event.run, max(0, event.have)
    run, have = visit.arrived
    return have if run == visit.run_number else 0


def _started(model: LanguageModel, asked: Controls) -> Started:
    config = replace(asked.config, prefill_chunk=chunk_for(model.device))
    return Started(model=model, config=config, in_chat=asked.in_chat, prompt=asked.prompt, history=asked.history)


def _can(visit: Visit, asked: Controls) -> dict[str, bool]:
    idle = not visit.is_busy
    return {
        "prefill": idle and asked.model is not None,
        "decode": idle and visit.can_decode,
        "step_back": idle and visit.trace is not None,
        "reset": visit.trace is not None or visit.refusal is not None or not idle,
        "next_turn": idle and visit.can_continue,
    }


def _notice(visit: Visit) -> dict[str, str] | None:
    """The sentence that stands beside the buttons: a refusal, or why no further token will come."""
    if visit.refusal is not None:
        return {"kind": "refusal", "text": visit.refusal.sentence(language())}
    if visit.activity:
        return {"kind": "info", "text": _why_it_waits(visit)}
    if visit.awaits_message:
        return {"kind": "info", "text": t("stage.awaits_message")}
    if visit.trace is not None and visit.trace.stopped and visit.started is not None:
        return {"kind": "stop", "text": _stop_reason(visit.trace.stopped, visit.started.model)}
    return None


def _why_it_waits(visit: Visit) -> str:
    """What is done for this visitor, or whom their step waits for."""
    place = engine().place(visit.under_way) if visit.under_way else 0
    if place:
        return t("stage.queued", place=count(place))
    if visit.activity == "waiting" and engine().is_measuring:
        return t("stage.measuring")
    return t(f"stage.{visit.activity or 'working'}")


def _note_refusal(visit: Visit) -> None:
    """Tells the operators why a visitor was refused, once, and not who or what was asked.

    Of a step that failed the engine has told them.
    """
    is_new = visit.refusal is not st.session_state.get("refusal_noted")
    if visit.refusal is not None and is_new and visit.refusal.key != "engine.step_failed":
        metrics().refused(visit.refusal.key)
        logging.getLogger(__name__).info("A run was refused.", extra={"reason": visit.refusal.key})
    st.session_state["refusal_noted"] = visit.refusal


def _line(visit: Visit, asked: Controls) -> dict[str, object] | None:
    """Model, dtype and device of the run, and whether the settings above are other ones by now."""
    model = visit.started.model if visit.started else asked.model
    if model is None:
        return None
    changed = visit.started is not None and not visit.started.same_settings(_started(asked.model or model, asked))
    return {"model": model.name, "machine": machine_line(model), "changed": changed}


def _stop_reason(stopped: Stop, model: LanguageModel) -> str:
    if stopped.kind is StopKind.LENGTH or stopped.value is None:
        return t("stage.stopped_length")
    if stopped.kind is StopKind.CONTEXT_LIMIT:
        return t("stage.stopped_context", limit=count(stopped.value))
    return t("stage.stopped_end_token", token=model.tokenizer.token_label(stopped.value), token_id=stopped.value)
