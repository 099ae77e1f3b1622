"""A few experts instead of all, for real: a small layer on the prompt's own hidden states, dense and routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques_shared import met_chart
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, percent, significant
from pages.shared.techniques.bench import Bench, measured
from pages.shared.techniques.compared import Line, as_bytes, as_flops, before_after, bytes_line, note_disturbed
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.reckoned import predict_term, show_reckoned
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.few_experts import FewExperts, FewExpertsResult


def show(bench: Bench) -> None:
    """The guess, the layer dense and routed, the formulas for a large model, what follows."""
    predict_term("experts")

    def make() -> FewExperts:
        from core.lab.few_experts import FewExperts

        return FewExperts(bench.model, bench.ids)

    result: FewExpertsResult | None = measured("experts", bench, "", make, lambda found: found.has_ended)
    if result is not None:
        _show_result(bench.model.name, result)
    show_reckoned("experts")
    if result is not None:
        takeaway(_takeaway(result))


def _show_result(model_name: str, result: FewExpertsResult) -> None:
    experts = result.experts
    described = t(
        "terms.experts_layer",
        experts=count(experts.n_experts),
        active=count(experts.n_active),
        size=as_bytes(result.expert_bytes),
        model=model_name,
        layer=count(result.layer + 1),
        states=count(result.n_states),
    )
    st.html(note(described))
    for batch in (result.batches[0], result.batches[-1]):
        st.html(note(t("terms.experts_pair", batch=count(batch), active=count(experts.n_active))))
        st.html(_pair(result, batch))
    st.html(_sizes(result))
    show_drawn("terms_experts_met", Html(met_chart(result, language())))
    st.html(note(_router(result)))
    note_disturbed(result.n_disturbed)


def _pair(result: FewExpertsResult, batch: int) -> Html:
    """All experts against a few drawn at random, for one batch size."""
    from core.lab.before_after import Both

    dense, few = result.at("all", batch), result.at("uniform", batch)
    flops = Both(result.flops("all", batch) / batch, result.flops("uniform", batch) / batch)
    expected = Both(result.expected_bytes("all", batch), result.expected_bytes("uniform", batch))
    return before_after(
        [
            Line("flops_token", flops, as_flops),
            bytes_line("experts_read", Both(dense.mean_bytes, few.mean_bytes), expected),
            Line("resident", Both(result.resident_bytes, result.resident_bytes), as_bytes),
            Line("layer_seconds", Both(dense.median_seconds, few.median_seconds), milliseconds),
        ]
    )


def _sizes(result: FewExpertsResult) -> Html:
    """Every batch size."""
    rows = []
    for batch in result.batches:
        dense, few, routed = (result.at(way, batch) for way in ("all", "uniform", "random"))
        rows.append(
            row(
                count(batch),
                f"{result.expected_distinct(batch):.2f}",
                f"{few.mean_distinct:.2f}",
                f"{routed.mean_distinct:.2f}",
                percent(few.mean_bytes / result.resident_bytes),
                milliseconds(dense.median_seconds),
                milliseconds(few.median_seconds),
                milliseconds(routed.median_seconds),
            )
        )
    heads = ("batch", "met_formula", "met", "met_router", "read_share", "dense_s", "few_s", "router_s")
    return table([t(f"terms.head_{name}") for name in heads], rows)


def _router(result: FewExpertsResult) -> str:
    """Where chance and the router differ most."""
    most = max(
        result.batches,
        key=lambda batch: abs(result.at("uniform", batch).mean_distinct - result.at("random", batch).mean_distinct),
    )
    chance, router = result.at("uniform", most).mean_distinct, result.at("random", most).mean_distinct
    key = "fewer" if router < chance else "as_many"
    return t(f"terms.router_{key}", batch=count(most), router=f"{router:.1f}", chance=f"{chance:.1f}")


def _takeaway(result: FewExpertsResult) -> str:
    first, last = result.batches[0], result.batches[-1]
    values: dict[str, str] = {}
    for name, batch in (("one", first), ("many", last)):
        dense, few = result.at("all", batch), result.at("uniform", batch)
        values |= {
            f"{name}_met": significant(few.mean_distinct),
            f"{name}_read": percent(few.mean_bytes / dense.mean_bytes),
            f"{name}_seconds": written_ratio(few.median_seconds / dense.median_seconds),
        }
    return t(
        "terms.takeaway_experts",
        experts=count(result.experts.n_experts),
        batch=count(last),
        flops=written_ratio(result.flops("uniform", first) / result.flops("all", first)),
        resident=as_bytes(result.resident_bytes),
        **values,
    )
