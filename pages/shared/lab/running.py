"""A sweep that runs: how far it is, how long it still takes, whom it waits for, and how it is ended."""

from __future__ import annotations

import time

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.html import Html, fill
from pages.shared.html_parts import note
from pages.shared.lab.kept import Begun, KeptSweep
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.resources import engine, engine_status


def show_running(sweep: KeptSweep) -> None:
    """Progress, the line, and Stop, which keeps what is measured. The browser asks again after a moment."""
    begun = sweep.begun
    if begun is None:  # it ended a moment ago
        return
    show_drawn("lab_status", _status(begun), is_under_way=True)
    st.button(t("lab.stop"), key="lab_stop", on_click=begun.measurement.cancel)


def show_others() -> None:
    """What another visitor measures now: who starts next will wait for it."""
    measuring = engine_status().measuring
    if measuring is not None:
        values = {"done": count(measuring.n_done), "total": count(measuring.n_points)}
        st.html(note(t("lab.others_measure", waiting=count(measuring.n_waiting), **values)))


def duration(seconds: float) -> str:
    """As long as somebody waits: 40 s, 3 min."""
    whole = max(1, round(seconds))
    return t("lab.seconds", n=count(whole)) if whole < 120 else t("lab.minutes", n=count(round(whole / 60)))


def _status(begun: Begun) -> Html:
    measurement = begun.measurement
    done, total = len(measurement.done), len(measurement.points)
    place = engine().place_of_measurement(measurement)
    left = duration(begun.remaining_s(time.monotonic()))
    measuring = engine_status().measuring
    if place > 0 and measuring is not None:
        said = t(
            "lab.waits", place=count(place), done=count(measuring.n_done), total=count(measuring.n_points), left=left
        )
    else:
        n_fills = total - begun.n_spots
        key = "lab.fills" if done < n_fills else "lab.measures"
        values = (done, n_fills) if done < n_fills else (done - n_fills, begun.n_spots)
        said = t(key, done=count(values[0]), total=count(values[1]), left=left)
        if measuring is not None and measuring.n_waiting:
            said += " " + t("lab.others_wait", n=count(measuring.n_waiting))
    return fill(
        '<div class="tbt-lab-bar" role="progressbar" aria-valuemin="0" aria-valuemax="{total}" aria-valuenow="{done}" '
        'aria-label="{said}"><i style="width:{share}%"></i></div>{note}',
        done=done,
        total=total,
        said=said,
        share=f"{100 * done / max(1, total):.1f}",
        note=note(said),
    )
