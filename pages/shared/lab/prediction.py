"""The prediction: what a decode step will take, typed before anything is measured. The page never waits for it."""

from __future__ import annotations

import streamlit as st

from core.lab.sweep.plan import SweepPlan
from core.lab.sweep.report import Prediction
from pages.shared.guess import guess
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.lab.asked import Asked, Wanted
from pages.shared.language import t
from pages.shared.numbers import count

MOST_MS = 1e6


def predict(asked: Asked) -> tuple[Prediction, ...]:
    """Asks, and returns what was typed so far: a few places for one model, or who is fastest among several."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t("lab.predict")))
    if len(asked.models) > 1:
        _who_is_fastest(asked)
        return ()
    st.html(note(t("lab.predict_note")))
    said = []
    with st.container(key="lab_predictions"):
        for context, batch in places(asked.plan):
            value = st.number_input(
                t("lab.predict_at", n=count(context), batch=count(batch)),
                0.0,
                MOST_MS,
                None,
                step=1.0,
                format="%.2f",
                key=f"lab_predict_{context}_{batch}",
                placeholder="ms",
                persist_state="session",
            )
            if value:
                said.append(Prediction(batch, context, value / 1e3))
    return tuple(said)


def places(plan: SweepPlan) -> list[tuple[int, int]]:
    """Where it is asked: the shortest, a middle and the longest context, for the smallest and the largest batch."""
    rising = sorted(plan.contexts)
    contexts = dict.fromkeys((rising[0], rising[len(rising) // 2], rising[-1]))
    batches = dict.fromkeys((min(plan.batches), max(plan.batches)))
    return [(context, batch) for batch in batches for context in contexts]


def variant_name(wanted: Wanted) -> str:
    """What one of several is called: MHA, GQA, MQA by its KV heads, or its dtype."""
    if wanted.shape is None or not wanted.variant.startswith("kv"):
        return wanted.variant
    _, heads, kv_heads, _ = wanted.shape
    kind = "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"
    return t("lab.variant_heads", kind=kind, n=count(kv_heads))


def guessed(compared: str) -> int | None:
    """Which of the several was taken for the fastest, in this session."""
    said = st.session_state.get(f"lab_fastest_{compared}")
    return said if isinstance(said, int) else None


def _who_is_fastest(asked: Asked) -> None:
    plan = asked.plan
    question = t("lab.predict_fastest", n=count(plan.most_context), batch=count(plan.most_batch))
    names = {index: variant_name(wanted) for index, wanted in enumerate(asked.models)}
    guess(question, names, f"lab_fastest_{asked.compared}")
