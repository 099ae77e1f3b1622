"""This machine's roofs, and the visitor's own steps below them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import streamlit as st

from core.lab.roofs.record import Roofs
from core.lab.roofs.steps import MeasuredStep, middle_step, with_floor
from core.refusal import Refusal
from pages.shared.guess import guess, reveal
from pages.shared.html import fill, join
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import count, percent, scaled_bytes
from pages.shared.resources import engine
from pages.shared.shelf import REAL_MODEL
from pages.shared.time.machine import measured_steps, roofs_here
from pages.shared.time.roofs_job import ROOFS_JOB
from pages.shared.time.roofs_tables import (
    all_readings,
    best_table,
    caches_table,
    curve_table,
    intensity,
    steps_table,
)
from pages.shared.trouble import refuse
from pages.shared.units import units

if TYPE_CHECKING:
    from pages.shared.visit import Visit

LOOK_AGAIN_SECONDS = 0.5
NEWEST = 6
"""So many steps are shown, and the prefill they began with."""
CHOICES = (1, 10, 30, 60, 90)
"""Shares to guess from, in percent."""


def show() -> None:
    """The panel from its question to its takeaway."""
    visit: Visit | None = st.session_state.get("visit")
    steps, roofs = measured_steps(visit), roofs_here()
    st.html(fill('<h2 class="tbt-h2">{title}</h2>{text}', title=t("roofs.title"), text=note(t("roofs.question"))))
    _prediction(steps, _model_name(visit))
    _measuring(roofs)
    if roofs is not None:
        _roofs(roofs)
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("roofs.steps_title")))
    if not steps:
        st.html(note(t("roofs.steps_none")))
    else:
        _steps(steps)
    _remarks(visit, steps, roofs)
    text = _takeaway(steps, roofs, _model_name(visit))
    if text:
        st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))


def _model_name(visit: Visit | None) -> str:
    return REAL_MODEL if visit is None or visit.started is None else visit.started.model.name


def _prediction(steps: tuple[MeasuredStep, ...], model: str) -> None:
    """The share of the memory roof that a decode step reaches: guessed first, then measured."""
    choices = {choice: t("roofs.guess_choice", share=f"{choice}%") for choice in CHOICES}
    said = guess(t("roofs.guess", model=model), choices, "roofs_guess")
    if said is None:
        return
    middle = middle_step(steps, "decode")
    if middle is None or middle.share is None:
        reveal(t("roofs.guess_open"))
        return
    share = middle.share
    nearest = min(CHOICES, key=lambda choice: abs(choice - 100 * share))
    key = "roofs.guess_right" if said == nearest else "roofs.guess_wrong"
    reveal(t(key, share=percent(share), count=count(len(with_floor(steps, "decode")))))


def _measuring(roofs: Roofs | None) -> None:
    """The button, or how far it is; what is measured is everybody's."""
    if ROOFS_JOB.under_way is not None:
        _progress()
        return
    if roofs is None:
        st.html(note(t("roofs.none")))
    if ROOFS_JOB.refusal is not None:
        refuse(ROOFS_JOB.refusal)
    if st.button(t("roofs.measure" if roofs is None else "roofs.again"), key="roofs_measure"):
        try:
            st.session_state["roofs_mine"] = ROOFS_JOB.begin()
        except Refusal as refusal:
            refuse(refusal)
        else:
            st.rerun()


@st.fragment(run_every=LOOK_AGAIN_SECONDS)
def _progress() -> None:
    """How far it is, looked at again and again; whoever began it can stop it."""
    measurement = ROOFS_JOB.under_way
    if measurement is None:
        st.rerun()
    done, total = len(measurement.done), len(measurement.points)
    place = engine().place_of_measurement(measurement)
    said = t("tools.waits", place=count(place)) if place > 0 else t("roofs.done", done=count(done), total=count(total))
    st.progress(done / total, text=said)
    is_mine = st.session_state.get("roofs_mine") is measurement
    if is_mine:
        st.button(t("tools.cancel"), key="roofs_cancel", on_click=measurement.cancel)


def _roofs(roofs: Roofs) -> None:
    machine = roofs.machine
    place = t("roofs.on_device", device=machine.device, name=machine.device_name)
    where = machine.processor if machine.device == "cpu" else f"{machine.processor} · {place}"
    values = {"processor": where, "threads": machine.n_threads, "cores": machine.n_cores, "torch": machine.torch}
    date = datetime.fromisoformat(roofs.measured_at).strftime("%Y-%m-%d %H:%M")
    st.html(best_table(roofs))
    st.html(note(t("roofs.measured_at", date=date, block=scaled_bytes(roofs.block_bytes, units()), **values)))
    n_disturbed = sum(reading.disturbed is True for reading in roofs.readings)
    if n_disturbed:
        st.html(note(t("roofs.disturbed", count=count(n_disturbed), total=count(len(roofs.readings)))))
    with st.expander(t("roofs.all_readings")):
        parts = [all_readings(roofs), caches_table(roofs)]
        if roofs.curve:
            parts += [note(t("roofs.curve_note")), curve_table(roofs)]
        st.html(join(parts))


def _steps(steps: tuple[MeasuredStep, ...]) -> None:
    newest = steps[-NEWEST:]
    st.html(steps_table(newest if steps[0] in newest else (steps[0], *newest)))


def _remarks(visit: Visit | None, steps: tuple[MeasuredStep, ...], roofs: Roofs | None) -> None:
    """What has to be said for the numbers to be honest."""
    if visit is None or visit.started is None or visit.trace is None:
        return
    n_shared = len(visit.trace.steps) - len(steps)
    if n_shared:
        st.html(note(t("roofs.steps_shared", count=count(n_shared))))
    if roofs is None or not steps:
        return
    model = visit.started.model
    if steps[-1].floor_s is None:
        st.html(note(t("roofs.steps_no_roof", dtype=model.dtype_name)))
    last = max((cache.n_bytes for cache in roofs.caches or ()), default=0)
    if steps[-1].bytes_read <= last:
        sizes = {"bytes": scaled_bytes(steps[-1].bytes_read, units()), "cache": scaled_bytes(last, units())}
        st.html(note(t("roofs.in_cache", model=model.name, **sizes)))


def _takeaway(steps: tuple[MeasuredStep, ...], roofs: Roofs | None, model: str) -> str:
    """What the roofs say, and with a prefill and a decode step below them, what those say."""
    decode, prefill = middle_step(steps, "decode"), middle_step(steps, "prefill")
    if decode is not None and prefill is not None:
        return t(
            "roofs.takeaway_both",
            model=model,
            n=count(prefill.n_tokens),
            decode_intensity=intensity(decode.intensity),
            decode_share=percent(decode.share or 0.0),
            decode_bound=t(f"roofs.bound_{decode.bound}"),
            prefill_intensity=intensity(prefill.intensity),
            prefill_share=percent(prefill.share or 0.0),
            prefill_bound=t(f"roofs.bound_{prefill.bound}"),
        )
    best = None if roofs is None else roofs.best("product")
    if roofs is None or best is None:
        return ""
    return t("roofs.takeaway_roofs", dtype=best.dtype, ridge=intensity(best.rate / roofs.read_bytes_per_s))
