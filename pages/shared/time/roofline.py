"""The roofline panel: both phases under one roof, of a card or of this machine."""

from __future__ import annotations

import streamlit as st

from core.estimate.roofline import decode_pass, placed, prefill_pass
from core.estimate.where import roof
from pages.shared.charts import say_in
from pages.shared.costs import Costs
from pages.shared.figures.roofline import measured
from pages.shared.html import fill
from pages.shared.html_parts import row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, percent, significant
from pages.shared.time.charts import on_a_card, time_say
from pages.shared.time.machine import against_roof, measured_steps, this_machine
from pages.shared.time.panel import example, figures, heading, names, picture, predict, remark, takeaway
from pages.shared.units import units

# Shares of the peak in thousandths.
CHOICES = (3, 30, 300, 900)


def show(costs: Costs) -> None:
    """The question, the picture, the figures, what it shows."""
    heading("roofline")
    _prediction()
    machine = this_machine()
    is_machine = machine is not None and st.toggle(
        t("time.on_this_machine"), key="time_machine", persist_state="session"
    )
    steps = measured_steps(st.session_state.get("visit")) if is_machine else ()
    still = (measured(steps, time_say(say_in(language(), units()))),) if steps else ()
    picture(costs, "roofline_machine" if is_machine else "roofline", still=still, csv=False)
    remark(t("time.roofline_note"))
    if is_machine:
        _measured()
    figures(costs, "roofline", ("roof.ridge", "decode.intensity", "decode.time_floor_s", "prefill.time_floor_s"))
    made, own = on_a_card(costs.made)
    if machine is not None and is_machine:
        own = machine[0]
    request = made.request
    decode = placed(made.shape, decode_pass(request), own)
    prefill = placed(made.shape, prefill_pass(request), own)
    takeaway(
        t(
            f"time.takeaway_roofline_{decode.split.bound}_{prefill.split.bound}",
            n=count(request.context),
            batch=count(request.batch),
            ridge=significant(own.ridge),
            decode=significant(decode.intensity),
            prefill=significant(prefill.intensity),
            share=percent(decode.flops_per_s / own.peak_flops),
        )
    )


def _prediction() -> None:
    made = example()
    own = roof(made)
    assert own is not None
    share = placed(made.shape, decode_pass(made.request), own).flops_per_s / own.peak_flops
    intensity = significant(made.decode.intensity)
    why = t("time.guess_roofline_why", share=percent(share), intensity=intensity, ridge=significant(own.ridge))
    choices = {choice: t("time.about_share", share=percent(choice / 1000)) for choice in CHOICES}
    predict("roofline", choices, share * 1000, why, **names(), n=count(made.request.context))


def _measured() -> None:
    """Each phase's quickest step beside the least that this machine's roof allows."""
    machine, steps = this_machine(), measured_steps(st.session_state.get("visit"))
    if machine is None or not steps:
        remark(t("time.measured_none"))
        return
    rows = []
    for phase in ("prefill", "decode"):
        of_phase = [(against_roof(step, machine[0]), step) for step in steps if step.phase == phase]
        if of_phase:
            best, _ = min(of_phase, key=lambda pair: pair[0].ratio)
            share = percent(1 / best.ratio) if best.is_possible else "–"
            rows.append(row(t(f"time.{phase}"), count(len(of_phase)), f"{best.ratio:.2f}×", share))
            if not best.is_possible:
                st.html(fill('<p class="tbt-notice tbt-refusal">{text}</p>', text=t("time.impossible")))
    st.html(table([t(f"time.measured_{name}") for name in ("phase", "steps", "ratio", "share")], rows))
