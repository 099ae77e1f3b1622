"""Mixture of experts: what is in memory against what a step reads, by formula and by a small layer that really runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.estimate import Estimate
from core.estimate.shape import Experts
from core.estimate.weights import expected_distinct_experts, weight_bytes_read
from core.lab.routed_record import EXPERTS, N_BATCHES, N_STATES, ROUTERS, RoutedResult, expert_bytes, routed_layer
from pages.shared.compute_story import experts_or_dense
from pages.shared.costs import Costs, show_chart, show_live_chart
from pages.shared.drawn import show_drawn
from pages.shared.figures.experts import distinct_chart, seconds_chart
from pages.shared.guess import guess, reveal
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, percent, scaled_bytes
from pages.shared.resources import shelf
from pages.shared.tools.job import NoRun, begin, heading, takeaway, watched
from pages.shared.units import units

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.model.load import LanguageModel

TOOL = "experts"
GUESS_BATCH = 16


def show(costs: Costs, figures: tuple[str, ...] = ()) -> None:
    """The panel from its question to its takeaway. `figures`: those of the page, which its parts ask for together."""
    heading(t("experts.title"), t("experts.question"))
    _prediction()
    if experts_or_dense(costs.made):
        st.html(_of_model(costs.made))
        show_live_chart(costs, "experts_against_batch", figures, ("xaxis",))
    names = shelf().usable
    if not names:
        st.html(note(t("experts.no_model")))
        return
    _real_layer(shelf().ask(names[0]).result())


def answer() -> int:
    """How many experts are met, to the nearest whole one."""
    return round(float(expected_distinct_experts(EXPERTS, GUESS_BATCH)))


def _prediction() -> None:
    """How many different experts a batch meets: guessed first, then reckoned."""
    E, k = EXPERTS.n_experts, EXPERTS.n_active
    choices = {value: count(value) for value in sorted({k, E // 2, answer(), E})}
    asked = t("experts.guess", batch=count(GUESS_BATCH), active=count(k), experts=count(E))
    said = guess(asked, choices, "experts_guess")
    if said is not None:
        verdict = t("tools.guess_right" if said == answer() else "tools.guess_wrong", answer=count(answer()))
        expected = f"{float(expected_distinct_experts(EXPERTS, GUESS_BATCH)):.1f}"
        reveal(t("experts.guess_why", verdict=verdict, batch=count(GUESS_BATCH), expected=expected))


def _of_model(made: Estimate) -> Html:
    """Resident and read bytes of the chosen model, and how many experts of a layer its batch meets."""
    shape, request = made.shape, made.request
    resident = made.weight_bytes
    amounts = {
        "resident": resident,
        "read": made.decode.weights_read,
        "one": int(weight_bytes_read(shape, request.weight_dtypes, 1)),
    }
    rows = [
        row(t(f"experts.row_{name}"), scaled_bytes(n_bytes, units()), percent(n_bytes / resident))
        for name, n_bytes in amounts.items()
    ]
    experts = next(group.feed_forward for group in shape.groups if isinstance(group.feed_forward, Experts))
    met = t(
        "experts.layers_meet",
        model=shape.name,
        experts=count(experts.n_experts),
        active=count(experts.n_active),
        batch=count(request.batch),
        distinct=f"{float(expected_distinct_experts(experts, request.batch)):.1f}",
    )
    heads = [t(f"experts.head_{name}") for name in ("what", "bytes", "share")]
    named = t("experts.of_model", model=shape.name, batch=count(request.batch))
    return fill('<h3 class="tbt-h2">{named}</h3>{table}{note}', named=named, table=table(heads, rows), note=note(met))


def _real_layer(model: LanguageModel) -> None:
    owner = NoRun(f"experts of {model.name}")
    st.html(fill('<h3 class="tbt-h2">{title}</h3>', title=t("experts.real_title")))
    st.html(note(_described(model)))
    if st.button(t("experts.start"), key="experts_start", type="primary"):
        _begin(model, owner)
    job = watched(TOOL, owner)
    result: RoutedResult | None = None if job is None else job.result()
    if job is None or result is None or job.is_under_way or not result.has_ended:
        is_under_way = job is not None and job.is_under_way
        show_drawn("experts_waits", note(t("experts.none")), is_under_way=is_under_way)
        return
    _show_result(result)


def _described(model: LanguageModel) -> str:
    """What is about to run."""
    config = model.config
    return t(
        "experts.real_note",
        experts=count(EXPERTS.n_experts),
        size=scaled_bytes(expert_bytes(EXPERTS, config.d_model), units()),
        active=count(EXPERTS.n_active),
        layer=count(routed_layer(config.n_layers) + 1),
        model=model.name,
        states=count(N_STATES),
        batches=count(N_BATCHES),
    )


def _begin(model: LanguageModel, owner: NoRun) -> None:
    # Only now: torch takes seconds to import.
    from core.lab.routed_runs import RoutedRuns

    def make() -> tuple[Measurement, Callable[[], RoutedResult]]:
        runs = RoutedRuns(model)
        return runs.measurement(), lambda: runs.result

    begin(TOOL, owner, make)


def _show_result(result: RoutedResult) -> None:
    parts = (("distinct", distinct_chart, _met), ("seconds", seconds_chart, _taken))
    for name, figure, numbers in parts:
        st.html(fill('<h3 class="tbt-h2">{title}</h3>', title=t(f"experts.{name}_title")))
        show_chart(f"experts_{name}", figure(result, language()))
        st.html(numbers(result))
    for text in _remarks(result):
        st.html(note(text))
    takeaway(_takeaway(result))


def _met(result: RoutedResult) -> Html:
    """Every batch size: formula and interval, and how many experts each router met."""
    rows = []
    for batch in result.batches:
        interval = result.interval(batch)
        means = (result.at(router, batch).mean_distinct for router in ROUTERS)
        expected = float(expected_distinct_experts(result.experts, batch))
        around = _in_one_line(f"{interval.low:.2f} – {interval.high:.2f}")
        rows.append(row(count(batch), f"{expected:.2f}", around, *(f"{mean:.2f}" for mean in means)))
    return table([t(f"experts.head_{name}") for name in ("batch", "formula", "interval", *ROUTERS)], rows)


def _taken(result: RoutedResult) -> Html:
    """Every batch size: what uniform and uneven choices read and took."""
    rows = []
    for batch in result.batches:
        both = result.at("uniform", batch), result.at("unbalanced", batch)
        n_bytes = (scaled_bytes(round(point.mean_bytes), units()) for point in both)
        seconds = (milliseconds(point.median_seconds) for point in both)
        rows.append(row(count(batch), *map(_in_one_line, (*n_bytes, *seconds))))
    heads = ("batch", "read_uniform", "read_unbalanced", "seconds_uniform", "seconds_unbalanced")
    return table([t(f"experts.head_{name}") for name in heads], rows)


def _in_one_line(text: str) -> str:
    return text.replace(" ", "\u00a0")


def _remarks(result: RoutedResult) -> list[str]:
    """What has to be said for the numbers to be understood."""
    inside = sum(result.interval(batch).holds(result.at("uniform", batch).mean_distinct) for batch in result.batches)
    n_batches = len(result.at("uniform", result.batches[0]).distinct)
    said = [t("experts.inside", inside=count(inside), all=count(len(result.batches)), batches=count(n_batches))]
    trained: dict[str, str] = {}
    for router in ("balanced", "unbalanced"):
        before, after = result.errors[router]
        trained |= {f"{router}_before": f"{before:.2f}", f"{router}_after": f"{after:.2f}"}
        trained[f"{router}_busiest"] = percent(max(result.shares[router]))
    share = percent(result.experts.n_active / result.experts.n_experts)
    said += [t("experts.trained", share=share, **trained), t("experts.maximum"), t("experts.overhead")]
    if result.n_disturbed:
        said.append(t("experts.disturbed", points=count(result.n_disturbed)))
    return said


def _takeaway(result: RoutedResult) -> str:
    uniform, uneven = result.same_work
    values: dict[str, str] = {}
    for name, point in (("uniform", uniform), ("uneven", uneven)):
        values |= {
            name: f"{point.mean_distinct:.1f}",
            f"{name}_bytes": scaled_bytes(round(point.mean_bytes), units()),
            f"{name}_seconds": milliseconds(point.median_seconds),
        }
    E = result.experts.n_experts
    return t(
        "experts.takeaway",
        batch=count(uniform.batch),
        rows=count(uniform.batch * result.experts.n_active),
        experts=count(E),
        resident=scaled_bytes(E * result.expert_bytes, units()),
        **values,
    )
