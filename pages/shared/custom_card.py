"""The number fields of a custom accelerator, and the question when one of them looks like a sparse figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from core.estimate.custom import NUMBERS, looks_sparse
from core.estimate.estimate import Estimate
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.setting import plain


def custom_fields(defaults: Mapping[str, Any]) -> None:
    """Memory, bandwidth and dense peaks; an emptied field returns to its default."""
    with st.container(key="costs_custom"):
        for name, number in NUMBERS.items():
            key = f"cost_{name}"
            st.number_input(
                t(f"costs.{name}"),
                float(number.least),
                float(number.most),
                defaults.get(key, "min"),
                step=1.0,
                format="%g",
                key=key,
                persist_state="session",
            )


def ask_about_sparse(made: Estimate) -> None:
    """What a dense figure is; or, of a peak that looks like the sparse one of a known card, whether it is dense."""
    card = made.request.accelerator
    suspect = looks_sparse(card) if card is not None else None
    if suspect is None:
        st.html(note(t("costs.sparse_note")))
        return
    asked = t(
        "costs.sparse_asked",
        kind=suspect.kind,
        typed=plain(suspect.typed / 1e12),
        card=suspect.card.name,
        dense=plain(suspect.dense / 1e12),
    )
    st.html(fill('<p class="tbt-notice tbt-refusal" role="status">{text}</p>', text=asked))
