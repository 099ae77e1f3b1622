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
    as_bytes,
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
"""Tokens that are written with something quantised."""
WINDOW, KEY_GROUP = 32, 32
"""Positions that stay as they are where a window is asked for, and that share a scale in each channel of the keys."""


def show_weights(bench: Bench) -> None:
    """The guess, the scheme, both models, what follows."""
    scheme = WEIGHT_SCHEMES[st.session_state["terms_scheme"]]
    predict_mark("weights", Mark.SAME, t("terms.why_weights"), bits=scheme.bits)
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
    predict_mark("cache", Mark.SAME, t("terms.why_cache"), bits=st.session_state["terms_bits"])
    with st.container(key="terms_options"):
        bits: Bits = st.selectbox(t("terms.bits"), CACHE_BITS, key="terms_bits", persist_state="session")
        by_channel = st.toggle(t("terms.by_channel", group=KEY_GROUP), key="terms_by_channel", persist_state="session")
        window = st.toggle(t("terms.window", n=WINDOW), key="terms_window", persist_state="session")

    scheme = CacheScheme(bits, KEY_GROUP if by_channel else None, WINDOW if window else 0)

    def make() -> QuantisedCacheExperiment:
        from core.lab.quantised_cache.experiment import QuantisedCacheExperiment

        return QuantisedCacheExperiment(bench.model, scheme, bench.asked(n_written(scheme, len(bench.ids))))

    asked = f"{bits} {by_channel} {window}"
    result: QuantisedKV | None = measured(
        "cache",
        bench,
        asked,
        make,
        lambda found: is_whole(found.compared, n_written(scheme, len(found.compared.prompt_ids))),
    )
    if result is None:
        return
    found = result.compared
    st.html(before_after([bytes_line("kv_bytes", found.kv_bytes, result.kv_bytes_formula), *quality_lines(found)]))
    _note_kept(result)
    key = "note_cache_speed" if found.decode_seconds.ratio >= 1 else "note_cache_fast"
    st.html(note(t(f"terms.{key}", seconds=ratio_of(found.decode_seconds), bytes=as_bytes(found.kv_bytes.before))))
    show_quality("cache", bench.model, found)
    _takeaway("cache", bench, found, ratio_of(found.kv_bytes))


def n_written(scheme: CacheScheme, n_prompt: int) -> int:
    """Tokens to write: what it takes until something is quantised, and then N_NEW."""
    return N_NEW + max(0, scheme.least_tokens - n_prompt)


def _note_kept(result: QuantisedKV) -> None:
    """How many positions stayed as they were, in the text that was written and in the held text."""
    n, n_held = result.compared.n_tokens, len(result.compared.quality.positions)
    kept, held_kept = (count(length - result.scheme.n_quantised(length)) for length in (n, n_held))
    said = {"n": count(n), "kept": kept, "held": count(n_held), "held_kept": held_kept}
    st.html(note(t("terms.note_cache_kept", **said)))


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
