"""This machine as page 4 draws it: its measured roofs, once they are there, and the steps of the live model."""

from __future__ import annotations

import streamlit as st

from core.estimate.observed import Against, against_floor
from core.estimate.roofline import Roof
from pages.shared.figures.roofline import Measured


def this_machine() -> tuple[Roof, str] | None:
    """The measured roofs of this machine and what it is called; None before they were measured."""
    return None


def measured_steps() -> tuple[Measured, ...]:
    """The steps that page 1's run of this visitor has made, on the clock; none before."""
    visit = st.session_state.get("visit")
    if visit is None or visit.trace is None:
        return ()
    # A step that other visitors' runs shared is left out: its time is theirs too, and their contexts are not known.
    alone = (step for step in visit.trace.steps if step.phase != "recompute" and step.batch == 1 and step.seconds)
    return tuple(
        Measured(
            step.phase,
            step.flops_exact / (step.weight_bytes_read + step.kv_bytes_read),
            step.flops_exact / step.seconds,
        )
        for step in alone
    )


def against_roof(step: Measured, roof: Roof) -> Against:
    """A measured step's time over the least that the roof allows."""
    return against_floor(1 / step.flops_per_s, 1 / roof.reachable(step.intensity))
