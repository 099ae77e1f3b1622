"""Memory over one request on the page: what comes and goes with every layer, and what stays until the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.kv import kv_bytes
from pages.shared.drawn import show_drawn
from pages.shared.figures.timeline import timeline_chart
from pages.shared.guess import guess, reveal
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, scaled_bytes
from pages.shared.tools.job import begin, heading, needs_run, takeaway, watched
from pages.shared.units import units
from pages.shared.visit import Visit

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.moments import Timeline
    from core.model.load import LanguageModel

TOOL = "timeline"
LENGTHS = (64, 128, 256, 512)
"""Positions to choose from besides the prompt's own; a prompt is repeated or cut to so many."""
OWN_LENGTH = 0


def show(visit: Visit) -> None:
    """The tool from its question to its takeaway."""
    heading(t("timeline.title"), t("timeline.question"))
    if visit.started is None or visit.trace is None:
        needs_run()
        return
    model, n_prompt = visit.started.model, len(visit.trace.prompt_ids)
    n_layers = model.config.n_layers
    choices = {value: t(f"timeline.guess_{name}", layers=count(n_layers)) for value, name in _choices(n_layers).items()}
    said = guess(t("timeline.guess"), choices, "timeline_guess")
    n_tokens, score_table, all_logits = _settings(model, n_prompt)
    if st.button(t("timeline.start"), key="timeline_start", type="primary"):
        _begin(visit, n_tokens, score_table, all_logits)
    job = watched(TOOL, visit)
    if job is None:
        st.html(note(t("timeline.none")))
        return
    made: Timeline = job.result()
    if job.is_under_way or not made.has_ended:
        show_drawn("timeline_waits", note(t("timeline.none")), is_under_way=job.is_under_way)
        return
    _show_result(made, model)
    if said is not None:
        _answer(said, made)
    takeaway(_takeaway(made))


def _choices(n_layers: int) -> dict[int, str]:
    return {1: "one", n_layers // 2: "half", n_layers: "all"}


def _settings(model: LanguageModel, n_prompt: int) -> tuple[int | None, bool, bool]:
    """How many positions, and the two switches."""
    with st.container(key="timeline_settings"):
        chosen = st.segmented_control(
            t("timeline.length"),
            [OWN_LENGTH, *(n for n in LENGTHS if n < model.config.context_limit - LENGTHS[0])],
            default=OWN_LENGTH,
            format_func=lambda n: count(n) if n else t("timeline.length_own", n=count(n_prompt)),
            key="timeline_length",
            required=True,
        )
        score_table = st.toggle(t("timeline.score_table"), key="timeline_score_table", persist_state="session")
        all_logits = st.toggle(t("timeline.all_logits"), key="timeline_all_logits", persist_state="session")
    return chosen or None, score_table, all_logits


def _begin(visit: Visit, n_tokens: int | None, score_table: bool, all_logits: bool) -> None:
    # Only now: torch takes seconds to import.
    from core.lab.moments import Switches
    from core.lab.timeline import MemoryTimeline

    started, trace = visit.started, visit.trace
    assert started is not None and trace is not None
    switches = Switches(score_table=score_table, all_logits=all_logits)

    def make() -> tuple[Measurement, Callable[[], Timeline]]:
        timeline = MemoryTimeline(started.model, trace.prompt_ids, switches, n_tokens)
        return timeline.measurement(), lambda: timeline.result

    begin(TOOL, visit, make)


def layers_at_once(made: Timeline) -> float:
    """How many layers' activations lay in memory together at the end of the prefill, measured.

    Were they kept, the last layer's peak would be as many times the first one's as there are layers.
    """
    peaks = made.layer_peaks(0)
    return peaks[-1] / peaks[0]


def _answer(said: int, made: Timeline) -> None:
    measured = layers_at_once(made)
    found = round(measured)
    verdict = t("tools.guess_right" if said == found else "tools.guess_wrong", answer=t("timeline.guess_one"))
    peaks = made.layer_peaks(0)
    values = {"first": scaled_bytes(peaks[0], units()), "last": scaled_bytes(peaks[-1], units())}
    reveal(t("timeline.guess_why", verdict=verdict, **values))


def _show_result(made: Timeline, model: LanguageModel) -> None:
    unit = ("MiB", 2**20) if units() == "binary" else ("MB", 10**6)

    def written(n_bytes: int) -> str:
        return scaled_bytes(n_bytes, units())

    if made.n_tokens != made.n_prompt:
        st.html(note(t("timeline.length_note", prompt=count(made.n_prompt), n=count(made.n_tokens))))
    show_drawn("timeline_request", Html(timeline_chart(made, language(), unit, written)))
    show_drawn("timeline_prefill", Html(timeline_chart(made, language(), unit, written, prefill_only=True)))
    st.html(_tables(made))
    st.html(_cache(made, model))
    if made.allocator_peak_bytes is not None:
        st.html(note(t("timeline.allocator", peak=written(made.allocator_peak_bytes))))


def _tables(made: Timeline) -> Html:
    """The two tables that the switches write out: by formula, and the largest tensor that was measured there."""
    rows = []
    for name, formula, measured, is_written in (
        ("score_table", made.score_table_bytes, made.largest(0, "attention"), made.switches.score_table),
        ("logits", made.logits_bytes, made.largest(0, "head"), True),
    ):
        gap = f"{count(measured - formula)} B" if is_written else t("timeline.not_written")
        rows.append(row(t(f"timeline.row_{name}"), f"{count(formula)} B", f"{count(measured)} B", gap))
    heads = [t(f"timeline.head_{name}") for name in ("table", "formula", "largest", "gap")]
    return fill("{table}{note}", table=table(heads, rows), note=note(t("timeline.tables_note")))


def _cache(made: Timeline, model: LanguageModel) -> Html:
    """The cache's bytes behind the prefill and behind the last step, beside the formula."""
    rows = []
    last_step = made.moments[-1].step
    for step in (0, last_step):
        n_tokens = made.n_tokens + step
        moment = made.of(step, "head")[-1]
        formula = kv_bytes(model.shape, n_tokens=n_tokens, dtypes=model.kv_dtypes)
        rows.append(
            row(
                count(n_tokens),
                f"{count(formula)} B",
                f"{count(moment.kv_used_bytes)} B",
                f"{count(moment.kv_reserved_bytes)} B",
            )
        )
    return table([t(f"timeline.head_{name}") for name in ("n", "formula", "used", "reserved")], rows)


def _takeaway(made: Timeline) -> str:
    before = made.moments[-2]
    end = made.moments[-1]
    return t(
        "timeline.takeaway",
        peak=scaled_bytes(max(made.layer_peaks(0)), units()),
        layers=count(len(made.layer_peaks(0))),
        left=count(before.activation_bytes),
        used=scaled_bytes(before.kv_used_bytes, units()),
        end=count(end.kv_reserved_bytes + end.activation_bytes),
    )
