"""Batching, experts, chunked prefill and a reused prefix: what they change by formula, and the page that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import streamlit as st

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.questions.technique_terms import Change, changes
from pages.shared.costs import other_model
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.link import apply_settings
from pages.shared.numbers import scaled, scaled_bytes, significant
from pages.shared.settings import COST_PAGES, PAGE_1
from pages.shared.techniques.bench import predict_mark
from pages.shared.techniques.matrix import written_ratio
from pages.shared.tools.job import takeaway
from pages.shared.units import units

PAGES = Path(__file__).resolve().parents[2]
MOE_MODEL = "mixtral-8x7b-v0.1"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The term that is guessed, and the page that runs the real thing; settings for it beside the model."""

    guessed: str
    page: str
    settings: dict[str, str] = field(default_factory=dict)


KNOWN = {
    "batching": Elsewhere("read", COST_PAGES[2], {"batch": "16"}),
    "experts": Elsewhere("flops", COST_PAGES[2], {"model": MOE_MODEL}),
    "chunks": Elsewhere("prefill", PAGE_1),
    "prefix": Elsewhere("prefill", PAGE_1),
}


def show(name: str, slug: str) -> None:
    """The guess, the terms, what can be seen elsewhere, and what follows."""
    where, found = KNOWN[name], changes(name, shape_named(slug))
    change = found[where.guessed]
    why = t(f"terms.why_{name}", ratio=written_ratio(change.ratio))
    predict_mark(name, change.mark, why)
    heads = [t(f"terms.head_{head}") for head in ("what", "before", "after", "ratio")]
    numbers = {term: one for term, one in found.items() if one.before}
    rows = [
        row(t(f"terms.term_{term}"), written(term, one.before), written(term, one.after), written_ratio(one.ratio))
        if one.before != one.after
        else row(t(f"terms.term_{term}"), written(term, one.before), written(term, one.after), t("terms.mark_same"))
        for term, one in numbers.items()
    ]
    st.html(table(heads, rows))
    st.html(note(t(f"terms.note_{name}")))
    (file,) = [file.name for file in PAGES.glob(f"*_{where.page}.py")]
    label = t("terms.see", page=t(f"heading_{where.page}"))
    if st.button(label, key=f"terms_see_{name}", type="tertiary"):
        if where.page in COST_PAGES:
            other_model()
            apply_settings({"model": slug} | where.settings, where.page)
        st.switch_page(file)
    takeaway(_takeaway(name, slug, found))


def written(term: str, value: float) -> str:
    """A term's amount with its unit."""
    if term == "steps":
        return significant(value)
    return f"{scaled(value)}FLOP" if term in ("flops", "prefill") else scaled_bytes(round(value), units())


def _takeaway(name: str, slug: str, found: dict[str, Change]) -> str:
    values: dict[str, str] = {}
    for term in ("read", "resident", "flops", "prefill", "steps"):
        one = found[term]
        values |= {
            term: written_ratio(one.ratio),
            f"{term}_before": written(term, one.before),
            f"{term}_after": written(term, one.after),
        }
    return t(f"terms.takeaway_{name}", model=models()[slug].name, **values)


PANELS: dict[str, Callable[[str], None]] = {name: partial(show, name) for name in KNOWN}
