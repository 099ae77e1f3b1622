"""Temperature, top-k and top-p: the distribution moves, no FLOP and no byte does, and the choosing takes its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.questions.technique_terms import Mark
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds, percent
from pages.shared.settings import MOST_TOP_K
from pages.shared.technique_settings import LEAST_TEMPERATURE, MOST_TEMPERATURE
from pages.shared.techniques.bench import Bench, measured, predict_mark
from pages.shared.techniques.compared import Line, as_bytes, as_flops, before_after, note_disturbed, show_texts
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.sampling_changes import Distribution, SamplingChanges, SamplingExperiment
    from core.model.load import LanguageModel

N_NEW = 16


def show(bench: Bench) -> None:
    """The guess, the dials, both runs, what follows."""
    predict_mark("sampling", Mark.SAME, t("terms.why_sampling"))
    with st.container(key="terms_options"):
        temperature = st.slider(
            t("temperature"),
            LEAST_TEMPERATURE,
            MOST_TEMPERATURE,
            step=0.1,
            key="terms_temperature",
            persist_state="session",
        )
        top_k = st.number_input(t("top_k"), 0, MOST_TOP_K, key="terms_top_k", persist_state="session")
        top_p = st.slider(t("top_p"), 0.0, 1.0, step=0.05, key="terms_top_p", persist_state="session")

    def make() -> SamplingExperiment:
        from core.lab.sampling_changes import SamplingExperiment
        from core.model.sampling import SamplingConfig

        sampling = SamplingConfig(temperature=float(temperature), top_k=int(top_k), top_p=float(top_p))
        return SamplingExperiment(bench.model, bench.ids, N_NEW, sampling)

    asked = f"{temperature:g} {top_k} {top_p:g}"
    result: SamplingChanges | None = measured(
        "sampling", bench, asked, make, lambda found: len(found.sampled) == N_NEW and found.first is not None
    )
    if result is not None and result.first is not None:
        _show_result(bench, result, result.first)


def _show_result(bench: Bench, result: SamplingChanges, first: Distribution) -> None:
    st.html(_distribution(bench.model, first))
    kept, known = count(first.kept_count), count(first.n_tokens_known)
    st.html(note(t("terms.sampling_kept", kept=kept, known=known, mass=percent(first.kept_mass))))
    lines = [
        Line("flops_all", result.flops, as_flops),
        Line("read_all", result.bytes_read, as_bytes),
        Line("kv_bytes", result.kv_bytes, as_bytes),
        Line("decode_seconds", result.pass_seconds, milliseconds),
        Line("choosing_seconds", result.choosing_seconds, milliseconds),
    ]
    st.html(before_after(lines))
    note_disturbed(result.n_disturbed)
    show_texts(bench.model, bench.ids[-result.n_prompt :], result.texts, t("terms.texts_drawn"))
    best, choosing = first.candidates[0], result.choosing_seconds
    takeaway(
        t(
            "terms.takeaway_sampling" if result.costs_equal else "terms.takeaway_sampling_differ",
            token=token_text(bench.model.tokenizer, best.token_id),
            before=percent(best.probability),
            after=percent(best.probability_kept),
            steps=count(len(result.sampled)),
            flops=as_flops(result.flops.after),
            read=as_bytes(result.bytes_read.after),
            greedy=milliseconds(choosing.before),
            drawn=milliseconds(choosing.after),
            share=percent(choosing.after / (result.pass_seconds.after + choosing.after)),
        )
    )


def _distribution(model: LanguageModel, first: Distribution) -> Html:
    """The likeliest tokens with both probabilities as bars and numbers."""
    rows = [
        row(
            token_text(model.tokenizer, candidate.token_id),
            _bar(candidate.probability, "before"),
            _bar(candidate.probability_kept, "after") if candidate.kept else t("terms.sampling_out"),
        )
        for candidate in first.candidates
    ]
    return table([t(f"terms.head_{name}") for name in ("token", "own_probability", "drawn_probability")], rows)


def _bar(share: float, kind: str) -> Html:
    return fill(
        '<span class="tbt-terms-bar tbt-terms-bar-{kind}"><i style="width:{width}%"></i></span> {share}',
        kind=kind,
        width=f"{100 * share:.1f}",
        share=percent(share),
    )
