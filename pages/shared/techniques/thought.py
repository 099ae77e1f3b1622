"""A long chain of thought: by formula for a large model on a card, and step after step for real on a small one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.lab.thought_costs import ThoughtCosts, thought_costs
from core.questions.dials import CARDS
from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques import memory_chart, thought_chart
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, gap_percent, milliseconds
from pages.shared.technique_settings import THOUGHTS
from pages.shared.techniques.bench import Bench, measured, predict
from pages.shared.techniques.compared import NONE, as_bytes, as_flops, note_disturbed
from pages.shared.techniques.matrix import written_ratio
from pages.shared.tools.job import takeaway
from pages.shared.units import units

if TYPE_CHECKING:
    from core.lab.long_thought import LongThought, ThoughtResult

N_PROMPT = 2048
N_ENDS = 16
"""Steps at each end of the real run whose medians are compared."""


def show(bench: Bench) -> None:
    """The formula with its guess, then the real run, what follows from both."""
    slug = st.session_state["terms_model"]
    with st.container(key="terms_options"):
        card = str(
            st.selectbox(
                t("terms.card"),
                CARDS,
                format_func=lambda name: accelerator_named(name).name,
                key="terms_card",
                persist_state="session",
            )
        )
        n_thought = st.select_slider(
            t("terms.n_thought"),
            THOUGHTS,
            format_func=count,
            key="terms_n_thought",
            persist_state="session",
        )
    costs = thought_costs(shape_named(slug), accelerator_named(card), N_PROMPT, int(n_thought))
    _prediction(costs)
    st.html(_by_formula(costs))
    divisor, unit = (2**30, "GiB") if units() == "binary" else (10**9, "GB")
    show_drawn("terms_thought_memory", Html(memory_chart(costs, language(), divisor, unit)))
    names = {"model": models()[slug].name, "card": accelerator_named(card).name}
    full = NONE if costs.full_at is None else count(costs.full_at)
    key = "fits" if costs.fits else "weights" if costs.full_at == 0 else "full"
    st.html(note(t(f"terms.thought_{key}", n=full, **names)))

    from core.engine.exclusive import MOST_TRIES

    def make() -> LongThought:
        from core.lab.long_thought import LongThought

        return LongThought(bench.model, bench.ids)

    st.html(note(t("terms.thought_real", model=bench.model.name, tries=count(MOST_TRIES))))
    result: ThoughtResult | None = measured(
        "thought", bench, "", make, lambda found: bool(found.steps) and len(found.steps) == found.n_planned
    )
    if result is not None:
        _real(result)
        takeaway(_takeaway(costs, result, names["model"]))


def _prediction(costs: ThoughtCosts) -> None:
    """How many times as long the last step takes as the first: guessed first."""
    steps = costs.step_s
    if steps is None:
        return
    right = round(100 * float(steps[-1] / steps[0]))
    factor = len(costs.n_tokens)
    choices = sorted({100, right, round(100 * float(costs.kv_bytes[-1] / costs.kv_bytes[0])), 100 * factor})
    named = {choice: written_ratio(choice / 100) if choice != 100 else t("terms.guess_same") for choice in choices}
    why = t("terms.why_thought", first=milliseconds(float(steps[0])), last=milliseconds(float(steps[-1])))
    predict("thought", named, right, why, n=count(factor))


def _by_formula(costs: ThoughtCosts) -> Html:
    """The first step, the last, and all of them."""
    steps = costs.step_s
    read = costs.kv_bytes + costs.weight_bytes_read
    rows = [
        row(t("terms.line_kv_bytes"), as_bytes(costs.kv_bytes[0]), as_bytes(costs.kv_bytes[-1]), NONE),
        row(t("terms.line_read"), as_bytes(read[0]), as_bytes(read[-1]), as_bytes(costs.bytes_read)),
        row(
            t("terms.line_flops_step"), as_flops(costs.flops[0]), as_flops(costs.flops[-1]), as_flops(costs.total_flops)
        ),
    ]
    if steps is not None and costs.seconds is not None:
        ends = milliseconds(float(steps[0])), milliseconds(float(steps[-1]))
        rows.append(row(t("terms.line_least_seconds"), *ends, milliseconds(costs.seconds)))
    return table([t(f"terms.head_{name}") for name in ("what", "first_step", "last_step", "all_steps")], rows)


def _real(result: ThoughtResult) -> None:
    first, last = result.steps[0], result.steps[-1]
    rows = [
        row(
            count(step.n_tokens),
            milliseconds(seconds or 0.0),
            as_bytes(step.kv_bytes),
            as_bytes(step.kv_bytes_formula),
            gap_percent(step.kv_bytes, step.kv_bytes_formula),
            as_flops(step.flops),
        )
        for step, seconds in (
            (first, result.median_seconds(0, N_ENDS)),
            (last, result.median_seconds(-N_ENDS, 0)),
        )
    ]
    heads = ("n", "step_seconds", "kv_measured", "formula", "gap", "step_flops")
    st.html(table([t(f"terms.head_{name}") for name in heads], rows))
    show_drawn("terms_thought_steps", Html(thought_chart(result.steps, language())))
    note_disturbed(result.n_disturbed)
    if last.n_tokens < result.context_limit:
        taken = {"seconds": milliseconds(result.seconds), "limit": count(result.context_limit)}
        st.html(note(t("terms.thought_capped", n=count(last.n_tokens), **taken)))


def _takeaway(costs: ThoughtCosts, result: ThoughtResult, model: str) -> str:
    first, last = result.median_seconds(0, N_ENDS) or 0.0, result.median_seconds(-N_ENDS, 0) or 0.0
    is_disturbed = result.is_disturbed(0, N_ENDS) or result.is_disturbed(-N_ENDS, 0)
    key = "disturbed" if is_disturbed else "rose" if last > first else "flat"
    return t(
        f"terms.takeaway_thought_{key}",
        model=model,
        n=count(len(costs.n_tokens)),
        cache=as_bytes(costs.kv_bytes[-1]),
        seconds=NONE if costs.seconds is None else milliseconds(costs.seconds),
        steps=count(len(result.steps)),
        ratio=written_ratio(last / first),
        flops=written_ratio(result.steps[-1].flops / result.steps[0].flops),
    )
