"""The panel of one decode step as a bar of time, and what others measured beside such floors."""

from __future__ import annotations

import streamlit as st

from core.estimate.observed import Observation, decode_band, observations, prefill_band
from core.estimate.where import roof
from pages.shared.costs import Costs
from pages.shared.html import Html, fill
from pages.shared.html_parts import row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, percent, significant
from pages.shared.time.charts import STEP_CONTEXTS, on_a_card, steps
from pages.shared.time.panel import example, heading, names, picture, predict, remark, takeaway

# How many times as long, in tenths.
CHOICES = (10, 20, 100, 1280)


def show(costs: Costs) -> None:
    """The question, the bars, what others measured, what it shows."""
    heading("step")
    _prediction()
    picture(costs, "step_time")
    _reuse(costs)
    decode, prefill = decode_band(), prefill_band()
    remark(
        t(
            "time.band",
            n=count(decode.n_observations),
            least=f"{decode.least:.2f}",
            most=f"{decode.most:.2f}",
            products=count(prefill.n_observations),
            low=percent(1 / prefill.most),
            high=percent(1 / prefill.least),
        )
    )
    with st.expander(t("time.observed")):
        st.html(observed_table())
    made, own = on_a_card(costs.made)
    step = steps(made, own)[0].split
    takeaway(
        t(
            f"time.takeaway_step_{step.bound}",
            n=count(made.request.context),
            batch=count(made.request.batch),
            weights=milliseconds(step.weights_s),
            kv=milliseconds(step.kv_s),
            compute=milliseconds(step.compute_s),
            busy=percent(min(step.memory_s, step.compute_s) / step.floor_s),
        )
    )


def _reuse(costs: Costs) -> None:
    """How often each weight is used once it has been read, and what that makes of a byte."""
    request = costs.made.request
    uses = {"prefill": request.context * request.batch, "decode_alone": 1, "decode_batch": request.batch}
    per_byte = 2 / request.weight_dtypes.rest.bytes_per_number
    rows = [row(t(f"time.reuse_{name}"), count(times), significant(per_byte * times)) for name, times in uses.items()]
    st.html(table([t(f"time.reuse_head_{name}") for name in ("pass", "times", "intensity")], rows))


def _prediction() -> None:
    made = example()
    own = roof(made)
    assert own is not None
    by_context = {step.n_tokens: step.split.floor_s for step in steps(made, own)}
    short, long = by_context[STEP_CONTEXTS[0]], by_context[STEP_CONTEXTS[-1]]
    why = t("time.guess_step_why", short=milliseconds(short), long=milliseconds(long), times=significant(long / short))
    choices = {choice: t("time.times", times=significant(choice / 10)) for choice in CHOICES}
    contexts = {"short": count(STEP_CONTEXTS[0]), "long": count(STEP_CONTEXTS[-1])}
    predict("step", choices, 10 * long / short, why, **names(), **contexts)


def observed_table() -> Html:
    """Every published row, those in the band first, each with its source."""
    listed = sorted(observations(), key=lambda one: (not one.is_in_band, one.ratio))
    heads = [t(f"time.observed_{name}") for name in ("what", "floor", "measured", "ratio", "counted", "source")]
    return table(heads, [_row(one) for one in listed])


def _row(one: Observation) -> Html:
    where = f"{one.n_cards} × {one.device}" if one.n_cards > 1 else one.device
    if one.is_in_band:
        counted = t("time.observed_in")
    else:
        counted = one.outside.sentence(language()) if one.outside else t("time.observed_several")
    return row(
        f"{one.name}, {one.engine}, {where}",
        milliseconds(one.floor_s),
        milliseconds(one.seconds),
        fill("<b>{times}×</b>", times=f"{one.ratio:.2f}"),
        counted,
        one.source.place,
    )
