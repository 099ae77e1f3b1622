"""Beneath an experiment: the same technique by formula for the model of the matrix, and the page that shows more."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.questions.technique_terms import Change, changes
from pages.shared.costs import other_model
from pages.shared.html import fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.link import apply_settings
from pages.shared.numbers import scaled, scaled_bytes, significant
from pages.shared.settings import COST_PAGES, PAGE_1
from pages.shared.techniques.bench import predict_mark
from pages.shared.techniques.matrix import written_ratio
from pages.shared.units import units

PAGES = Path(__file__).resolve().parents[2]
MOE_MODEL = "mixtral-8x7b-v0.1"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The term that is guessed, and the page that shows more; settings for it beside the model."""

    guessed: str
    page: str
    settings: dict[str, str] = field(default_factory=dict)


KNOWN = {
    "batching": Elsewhere("read", COST_PAGES[2], {"batch": "16"}),
    "experts": Elsewhere("flops", COST_PAGES[2], {"model": MOE_MODEL}),
    "chunks": Elsewhere("prefill", PAGE_1),
    "prefix": Elsewhere("prefill", PAGE_1),
}


def predict_term(name: str) -> None:
    """The guess about the term that the technique is known for."""
    slug = st.session_state["terms_model"]
    change = _changes(name)[KNOWN[name].guessed]
    why = t(f"terms.why_{name}", ratio=written_ratio(change.ratio), model=models()[slug].name)
    predict_mark(name, change.mark, why)


def show_reckoned(name: str) -> None:
    """Every term before and after for the model of the matrix, what follows, and where more is to be seen."""
    slug, where, found = st.session_state["terms_model"], KNOWN[name], _changes(name)
    st.html(fill('<h3 class="tbt-h2">{title}</h3>', title=t("terms.reckoned", model=models()[slug].name)))
    heads = [t(f"terms.head_{head}") for head in ("what", "before", "after", "ratio")]
    rows = [
        row(
            t(f"terms.term_{term}"),
            _written(term, one.before),
            _written(term, one.after),
            t("terms.mark_same") if one.before == one.after else written_ratio(one.ratio),
        )
        for term, one in found.items()
        if one.before
    ]
    st.html(table(heads, rows))
    st.html(note(_said(name, slug, found)))
    st.html(note(t(f"terms.note_{name}")))
    (file,) = [file.name for file in PAGES.glob(f"*_{where.page}.py")]
    label = t("terms.see", page=t(f"heading_{where.page}"))
    if st.button(label, key=f"terms_see_{name}", type="tertiary"):
        if where.page in COST_PAGES:
            other_model()
            apply_settings({"model": slug} | where.settings, where.page)
        st.switch_page(file)


def _changes(name: str) -> dict[str, Change]:
    return changes(name, shape_named(st.session_state["terms_model"]))


def _written(term: str, value: float) -> str:
    """A term's amount with its unit."""
    if term == "steps":
        return significant(value)
    return f"{scaled(value)}FLOP" if term in ("flops", "prefill") else scaled_bytes(round(value), units())


def _said(name: str, slug: str, found: dict[str, Change]) -> str:
    """What the table comes to, in a sentence."""
    values: dict[str, str] = {}
    for term in ("read", "resident", "flops", "prefill", "steps"):
        one = found[term]
        values |= {
            term: written_ratio(one.ratio),
            f"{term}_before": _written(term, one.before),
            f"{term}_after": _written(term, one.after),
        }
    return t(f"terms.reckoned_{name}", model=models()[slug].name, **values)
