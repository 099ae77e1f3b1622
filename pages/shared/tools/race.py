"""The race on the page: the visitor's prompt with the cache and recomputed, in two lanes of real seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.recompute import recompute_gap
from pages.shared.drawn import show_drawn
from pages.shared.figures.race import positions_chart, seconds_chart
from pages.shared.guess import guess, reveal
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, scaled
from pages.shared.resources import limits
from pages.shared.tools.job import begin, heading, needs_run, takeaway, watched
from pages.shared.visit import Visit

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.lab.race import Lanes, RaceResult

TOOL = "race"
LEAST_NEW, MOST_NEW, DEFAULT_NEW = 4, 64, 24
FORMULA_MODEL, FORMULA_CARD, FORMULA_CONTEXT = "llama-3.1-8b", "h100-sxm", 8192


def show(visit: Visit) -> None:
    """The tool from its question to its takeaway."""
    heading(t("race.title"), t("race.question"))
    if visit.started is None or visit.trace is None:
        needs_run()
        return
    n_prompt = len(visit.trace.prompt_ids)
    n_new = st.slider(t("race.n_new"), LEAST_NEW, MOST_NEW, DEFAULT_NEW, key="race_new", persist_state="session")
    _prediction(n_prompt, n_new)
    if st.button(t("race.start", n=count(n_new)), key="race_start", type="primary"):
        _begin(visit, n_new)
    job = watched(TOOL, visit)
    if job is None:
        st.html(note(t("race.none")))
        return
    result: RaceResult = job.result()
    if not result.steps:
        show_drawn("race_waits", note(t("race.none")), is_under_way=job.is_under_way)
        return
    _show_result(result, visit.started.model.dtype_name, is_under_way=job.is_under_way)


def _begin(visit: Visit, n_new: int) -> None:
    # Only now: torch takes seconds to import.
    from core.lab.race import Race

    started, trace = visit.started, visit.trace
    assert started is not None and trace is not None

    def make() -> tuple[Measurement, Callable[[], RaceResult]]:
        limits().check(len(trace.prompt_ids), n_new, use_cache=False)
        race = Race(started.model, trace.prompt_ids, n_new, started.config.sampling)
        return race.measurement(), lambda: race.result

    begin(TOOL, visit, make)


def _prediction(n_prompt: int, n_new: int) -> None:
    """How many positions recomputing sends through the layers: guessed first."""
    last = n_prompt + n_new - 1
    right = n_prompt * n_new + n_new * (n_new - 1) // 2
    choices = sorted({last, n_prompt * n_new, right, 2 * right})
    asked = t("race.guess", prompt=count(n_prompt), n=count(n_new))
    said = guess(asked, {value: count(value) for value in choices}, f"race_guess_{n_prompt}_{n_new}")
    if said is not None:
        verdict = t("tools.guess_right" if said == right else "tools.guess_wrong", answer=count(right))
        values = {"prompt": count(n_prompt), "last": count(last), "total": count(right)}
        reveal(t("race.guess_why", verdict=verdict, **values))


def _show_result(result: RaceResult, dtype: str, *, is_under_way: bool) -> None:
    show_drawn("race_lanes", _lanes(result), is_under_way=is_under_way)
    if is_under_way:
        return
    show_drawn("race_positions", Html(positions_chart(result, language(), count)))
    show_drawn("race_seconds", Html(seconds_chart(result, language(), milliseconds)))
    st.html(_figures(result))
    for text in _remarks(result, dtype):
        st.html(note(text))
    st.html(_formula(result.steps[-1].n_tokens))
    takeaway(_takeaway(result))


def _lanes(result: RaceResult) -> Html:
    """Two bars that grow as the seconds go by."""
    seconds = result.seconds
    longest = max(seconds.cached, seconds.recomputed)
    bars = join(
        fill(
            '<div class="tbt-lane"><span>{name}</span><div><i class="tbt-lane-{kind}" style="width:{share}%"></i></div>'
            "<b>{text}</b></div>",
            name=t(f"race.lane_{kind}"),
            kind=kind,
            share=f"{100 * value / longest:.1f}",
            text=milliseconds(value),
        )
        for kind, value in (("cached", seconds.cached), ("recomputed", seconds.recomputed))
    )
    said = t("race.lanes_note", done=count(len(result.steps)), total=count(result.n_planned))
    return fill('<div class="tbt-lanes">{bars}</div>{note}', bars=bars, note=note(said))


def _figures(result: RaceResult) -> Html:
    """Everything that was measured and counted, lane beside lane: of the whole race, and of its decode steps alone."""
    decoding = result.after_prefill
    written: list[tuple[str, Lanes, Callable[[float], str]]] = [
        ("seconds", result.seconds, milliseconds),
        ("positions", result.positions, lambda value: count(int(value))),
        ("flops", result.flops, lambda value: f"{scaled(value)}FLOP"),
    ]
    if decoding.steps:
        written += [
            ("seconds_decode", decoding.seconds, milliseconds),
            ("flops_decode", decoding.flops, lambda value: f"{scaled(value)}FLOP"),
        ]
    rows = [
        row(t(f"race.row_{name}"), write(lanes.cached), write(lanes.recomputed), times(lanes.ratio))
        for name, lanes, write in written
    ]
    return table([t(f"race.head_{name}") for name in ("what", "cached", "recomputed", "ratio")], rows)


def _remarks(result: RaceResult, dtype: str) -> list[str]:
    """What has to be said for the numbers to be honest; `dtype` is the cache's."""
    decoding = result.after_prefill
    said = [t("race.logits", difference=f"{result.logit_difference:.1e}", dtype=dtype)]
    if decoding.steps and decoding.seconds.ratio < decoding.flops.ratio:
        ratios = {"seconds": times(decoding.seconds.ratio), "flops": times(decoding.flops.ratio)}
        said.append(t("race.small_model", **ratios))
    if result.n_planned < result.n_asked:
        said.append(t("race.fewer", planned=count(result.n_planned), asked=count(result.n_asked)))
    if len(result.steps) < result.n_planned:
        said.append(t("race.ended", done=count(len(result.steps)), planned=count(result.n_planned)))
    if result.n_disturbed:
        said.append(t("race.disturbed", points=count(result.n_disturbed)))
    return said


def _formula(n_tokens: int) -> Html:
    """The same gap of a larger model on a larger machine, by formula."""
    card = accelerator_named(FORMULA_CARD)
    rows = []
    for n in (n_tokens, FORMULA_CONTEXT):
        gap = recompute_gap(catalogue.shape(FORMULA_MODEL), n, card)
        floors = gap.decode_floor, gap.recompute_floor
        ratio = gap.seconds_ratio
        rows.append(
            row(
                count(n),
                f"{scaled(gap.decode_flops)}FLOP",
                f"{scaled(gap.recompute_flops)}FLOP",
                times(gap.flops_ratio),
                *("–" if floor is None else milliseconds(floor.seconds) for floor in floors),
                "–" if ratio is None else times(ratio),
            )
        )
    heads = ("n", "decode_flops", "recompute_flops", "flops_ratio", "decode_floor", "recompute_floor", "floor_ratio")
    named = t("race.formula", model=catalogue.model_named(FORMULA_MODEL).name, card=card.name)
    return fill(
        '<h3 class="tbt-h2">{named}</h3>{table}{note}',
        named=named,
        table=table([t(f"race.head_{name}") for name in heads], rows),
        note=note(t("race.formula_note")),
    )


def _takeaway(result: RaceResult) -> str:
    positions, seconds = result.positions, result.seconds
    return t(
        "race.takeaway" if result.tokens_equal else "race.takeaway_differ",
        n=count(len(result.steps)),
        cached=count(int(positions.cached)),
        recomputed=count(int(positions.recomputed)),
        positions=times(positions.ratio),
        flops=times(result.flops.ratio),
        seconds=times(seconds.ratio),
        short=milliseconds(seconds.cached),
        long=milliseconds(seconds.recomputed),
    )


def times(ratio: float) -> str:
    """How many times: 38×, 4.1×, 1.03×."""
    return f"{ratio:,.0f}×" if ratio >= 19.5 else f"{ratio:.1f}×" if ratio >= 1.95 else f"{ratio:.2f}×"
