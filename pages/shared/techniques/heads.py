"""Fewer KV heads by averaging: bytes fall in proportion; what that costs nobody can know without measuring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.techniques.bench import Bench, measured, predict
from pages.shared.techniques.compared import (
    HARDLY_NATS,
    Line,
    as_flops,
    as_perplexity,
    before_after,
    bytes_line,
    is_whole,
    quality_lines,
    ratio_of,
    share,
    show_quality,
)
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.of_model import chosen_of
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.merged_heads import MergedHeads, MergedHeadsExperiment

N_NEW = 24


def show(bench: Bench) -> None:
    """The number of heads, the guess, both models, what follows."""
    from core.lab.merged_heads import fewer_heads

    own, choices = bench.model.config.n_kv_heads, fewer_heads(bench.model.config)
    if not choices:
        st.html(note(t("terms.heads_one", model=bench.model.name)))
        return
    key, label = f"terms_heads_{bench.model.name}", t("terms.heads", own=count(own))
    wanted = chosen_of(
        "terms_kv_heads",
        key,
        choices,
        choices[0],
        lambda: st.selectbox(label, choices, key=key, persist_state="session"),
    )
    kept = {wanted: wanted / own, own: 1.0, own * own: wanted / own / own}
    named = {place: written_ratio(share) if share != 1 else t("terms.guess_same") for place, share in kept.items()}
    why = t("terms.why_heads", own=count(own), wanted=count(wanted))
    predict("heads", named, wanted, why, own=count(own), wanted=count(wanted))

    def make() -> MergedHeadsExperiment:
        from core.lab.merged_heads import MergedHeadsExperiment

        return MergedHeadsExperiment(bench.model, wanted, bench.asked(N_NEW))

    result: MergedHeads | None = measured(
        "heads", bench, str(wanted), make, lambda found: is_whole(found.compared, N_NEW)
    )
    if result is None:
        return
    found = result.compared
    lines = [bytes_line("kv_bytes", found.kv_bytes, result.kv_bytes_formula)]
    lines.append(Line("flops_step", result.decode_flops, as_flops))
    st.html(before_after([*lines, *quality_lines(found)]))
    st.html(note(t("terms.note_heads")))
    show_quality("heads", bench.model, found)
    takeaway(
        t(
            "terms.takeaway_heads" if found.quality.mean_divergence >= HARDLY_NATS else "terms.takeaway_heads_close",
            model=bench.model.name,
            ratio=ratio_of(found.kv_bytes),
            flops=ratio_of(result.decode_flops),
            before=as_perplexity(found.quality.perplexity_before),
            after=as_perplexity(found.quality.perplexity_after),
            agreement=share(found.quality.agreement),
        )
    )
