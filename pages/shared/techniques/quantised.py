"""Weights, and keys and values, as integers of few bits: bytes against their formula, and what is lost, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.estimate.quantised import GROUPS, Bits, CacheScheme, Scheme
from core.questions.technique_terms import Mark
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.shelf import REAL_MODEL
from pages.shared.technique_settings import CACHE_BITS, WEIGHT_SCHEMES
from pages.shared.techniques.bench import Bench, measured, predict_mark
from pages.shared.techniques.compared import (
    before_after,
    bytes_line,
    is_whole,
    quality_lines,
    ratio_of,
    share,
    show_quality,
)
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.before_after import Compared
    from core.lab.quantised_cache.experiment import QuantisedCacheExperiment, QuantisedKV
    from core.lab.quantised_weights.experiment import QuantisedWeights, QuantisedWeightsExperiment

N_NEW = 24
WINDOW, KEY_GROUP = 32, 32
"""Positions that stay as they are where a window is asked for, and that share a scale in each channel of the keys."""


def show_weights(bench: Bench) -> None:
    """The guess, the scheme, both models, what follows."""
    predict_mark("weights", Mark.SAME, t("terms.why_weights"))
    names = {name: _scheme_name(scheme) for name, scheme in WEIGHT_SCHEMES.items()}
    chosen = str(
        st.selectbox(
            t("terms.scheme"), names, format_func=names.__getitem__, key="terms_scheme", persist_state="session"
        )
    )

    def make() -> QuantisedWeightsExperiment:
        from core.lab.quantised_weights.experiment import QuantisedWeightsExperiment

        return QuantisedWeightsExperiment(bench.model, WEIGHT_SCHEMES[chosen], bench.asked(N_NEW))

    result: QuantisedWeights | None = measured(
        "weights", bench, chosen, make, lambda found: is_whole(found.compared, N_NEW)
    )
    if result is None or result.weight_bytes is None:
        return
    found = result.compared
    st.html(
        before_after(
            [bytes_line("weight_bytes", result.weight_bytes, result.weight_bytes_formula), *quality_lines(found)]
        )
    )
    remarks = ["weights_read", "weights_speed"]
    if bench.model.name == REAL_MODEL:
        remarks.append("weights_q4")
    if bench.model.config.d_model % max(GROUPS):
        remarks.append("weights_padded")
    for name in remarks:
        st.html(note(t(f"terms.note_{name}", width=count(bench.model.config.d_model))))
    show_quality("weights", bench.model, found)
    _takeaway("weights", bench, found, ratio_of(result.weight_bytes))


def show_cache(bench: Bench) -> None:
    """The guess, the scheme, both caches, what follows."""
    predict_mark("cache", Mark.SAME, t("terms.why_cache"))
    with st.container(key="terms_options"):
        bits: Bits = st.selectbox(t("terms.bits"), CACHE_BITS, key="terms_bits", persist_state="session")
        by_channel = st.toggle(t("terms.by_channel", group=KEY_GROUP), key="terms_by_channel", persist_state="session")
        window = st.toggle(t("terms.window", n=WINDOW), key="terms_window", persist_state="session")

    def make() -> QuantisedCacheExperiment:
        from core.lab.quantised_cache.experiment import QuantisedCacheExperiment

        scheme = CacheScheme(bits, KEY_GROUP if by_channel else None, WINDOW if window else 0)
        return QuantisedCacheExperiment(bench.model, scheme, bench.asked(N_NEW))

    asked = f"{bits} {by_channel} {window}"
    result: QuantisedKV | None = measured("cache", bench, asked, make, lambda found: is_whole(found.compared, N_NEW))
    if result is None:
        return
    found = result.compared
    st.html(before_after([bytes_line("kv_bytes", found.kv_bytes, result.kv_bytes_formula), *quality_lines(found)]))
    kept = found.n_tokens - result.scheme.n_quantised(found.n_tokens)
    st.html(note(t("terms.note_cache_kept", n=count(found.n_tokens), kept=count(kept))))
    st.html(note(t("terms.note_cache_speed")))
    show_quality("cache", bench.model, found)
    _takeaway("cache", bench, found, ratio_of(found.kv_bytes))


def _scheme_name(scheme: Scheme) -> str:
    if scheme.group is None:
        return t("terms.scheme_rows", bits=scheme.bits)
    return t("terms.scheme_groups", bits=scheme.bits, group=scheme.group)


def _takeaway(name: str, bench: Bench, found: Compared, ratio: str) -> None:
    quality = found.quality
    takeaway(
        t(
            f"terms.takeaway_{name}",
            model=bench.model.name,
            ratio=ratio,
            seconds=ratio_of(found.decode_seconds),
            perplexity=ratio_of(type(found.decode_seconds)(quality.perplexity_before, quality.perplexity_after)),
            agreement=share(quality.agreement),
        )
    )
