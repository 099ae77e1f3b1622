"""The proof on the page: what writing to the right does to keys and values that are there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.causality import causality_chart, written
from pages.shared.guess import guess, reveal
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count
from pages.shared.tools.job import begin, heading, needs_run, takeaway, watched
from pages.shared.visit import Visit

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.causality import Causality, Change

TOOL = "causality"
MOST_RIGHT = 16
"""Tokens of the visitor's own run that are written to the right."""
MOST_CHARACTERS = 400


def show(visit: Visit) -> None:
    """The tool from its question to its takeaway."""
    heading(t("causality.title"), t("causality.question"))
    if visit.started is None or visit.trace is None:
        needs_run()
        return
    n_layers = visit.started.model.config.n_layers
    said = {
        name: guess(t(f"causality.guess_{name}"), _choices(n_layers), f"causality_guess_{name}")
        for name in ("masked", "unmasked")
    }
    text = st.text_input(
        t("causality.right"),
        key="causality_right",
        max_chars=MOST_CHARACTERS,
        placeholder=t("causality.right_empty"),
        persist_state="session",
    )
    if st.button(t("causality.start"), key="causality_start", type="primary"):
        _begin(visit, text)
    job = watched(TOOL, visit)
    if job is None:
        st.html(note(t("causality.none")))
        return
    result: Causality = job.result()
    if job.is_under_way or result.masked is None or result.unmasked is None:
        show_drawn("causality_waits", note(t("causality.none")), is_under_way=job.is_under_way)
        return
    _show_result(result, result.masked, result.unmasked, job.asked["right"])
    for name, change in (("masked", result.masked), ("unmasked", result.unmasked)):
        if said[name] is not None:
            _answer(name, said[name], change, rounding=result.masked.largest)
    takeaway(_takeaway(result, result.masked, result.unmasked))


def _choices(n_layers: int) -> dict[int, str]:
    """In how many layers something changes."""
    named = {0: "none", 1: "one", n_layers - 1: "later", n_layers: "all"}
    return {value: t(f"causality.in_{name}", layers=count(n_layers)) for value, name in named.items()}


def _begin(visit: Visit, text: str) -> None:
    # Only now: torch takes seconds to import.
    from core.lab.causality import CausalityProof

    started, trace = visit.started, visit.trace
    assert started is not None and trace is not None
    model = started.model
    right = model.tokenizer.encode(text) if text else list(trace.output_ids[:MOST_RIGHT])

    def make() -> tuple[Measurement, Callable[[], Causality]]:
        proof = CausalityProof(model, trace.prompt_ids, right)
        return proof.measurement(), lambda: proof.result

    begin(TOOL, visit, make, right=model.tokenizer.decode(right, after=trace.prompt_ids))


def changed(change: Change, rounding: float) -> int:
    """In how many layers something changed by more than rounding does."""
    return sum(layer.largest > rounding for layer in change.layers)


def _answer(name: str, said: int | None, change: Change, rounding: float) -> None:
    found = changed(change, rounding)
    verdict = t(
        "tools.guess_right" if said == found else "tools.guess_wrong",
        answer=t("causality.in_layers", changed=count(found), layers=count(len(change.layers))),
    )
    reveal(t(f"causality.why_{name}", verdict=verdict))


def _show_result(result: Causality, masked: Change, unmasked: Change, right: str) -> None:
    st.html(note(t("causality.done", past=count(result.n_past), right=count(len(result.right_ids)), text=right)))
    if result.n_past < result.n_prompt:
        st.html(note(t("causality.cut", past=count(result.n_past), prompt=count(result.n_prompt))))
    rows = [
        row(
            t(f"causality.row_{name}"),
            written(change.largest),
            written(change.layers[0].largest),
            count(changed(change, masked.largest)),
            written(change.magnitude),
        )
        for name, change in (("masked", masked), ("unmasked", unmasked))
    ]
    heads = [t(f"causality.head_{name}") for name in ("experiment", "largest", "first", "changed", "magnitude")]
    st.html(table(heads, rows))
    show_drawn("causality_chart", Html(causality_chart(masked, unmasked, language())))
    if masked.largest:
        st.html(note(t("causality.rounding", difference=written(masked.largest), magnitude=written(masked.magnitude))))
    st.html(note(t("causality.first_layer")))


def _takeaway(result: Causality, masked: Change, unmasked: Change) -> str:
    return t(
        "causality.takeaway_rounding" if masked.largest else "causality.takeaway",
        right=count(len(result.right_ids)),
        past=count(result.n_past),
        layers=count(len(masked.layers)),
        difference=written(masked.largest),
        changed=count(changed(unmasked, masked.largest)),
        unmasked=written(unmasked.largest),
    )
