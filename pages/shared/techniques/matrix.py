"""The matrix of technique × term: what each mark says is reckoned for the chosen model, or left to measuring."""

from __future__ import annotations

import streamlit as st

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.questions.technique_terms import (
    ALPHA,
    BATCH,
    CHUNK,
    GAMMA,
    N_PROMPT,
    TECHNIQUES,
    TERMS,
    Change,
    Mark,
    changes,
    split_experts,
    with_technique,
)
from core.questions.techniques import LONG_THOUGHT, SHORT_ANSWER
from pages.shared.drawn import show_drawn
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import count, percent
from pages.shared.settings import terms_models

SIGNS = {Mark.DOWN: "↓", Mark.UP: "↑", Mark.SAME: "=", Mark.OTHER: "≠", Mark.MEASURE: "?"}


def show_matrix() -> None:
    """The model it is reckoned for, the matrix with the chosen row marked, and what was supposed."""
    st.selectbox(
        t("terms.model"),
        terms_models(),
        format_func=lambda slug: models()[slug].name,
        key="terms_model",
        persist_state="session",
        filter_mode=None,
    )
    slug, chosen = st.session_state["terms_model"], st.session_state["technique"]
    rows = join(_row(name, slug, is_chosen=name == chosen) for name in TECHNIQUES)
    heads = join(fill('<th scope="col">{text}</th>', text=t(f"terms.term_{term}")) for term in TERMS)
    show_drawn(
        "terms_table",
        fill(
            '<div class="tbt-scroll tbt-terms" tabindex="0" role="region" aria-label="{label}">'
            '<table class="tbt-facts"><thead><tr><th scope="col">{corner}</th>{heads}</tr></thead>'
            "<tbody>{rows}</tbody></table></div>",
            label=t("terms.matrix", model=models()[slug].name),
            corner=t("terms.corner"),
            heads=heads,
            rows=rows,
        ),
        on_chosen=opened,
    )
    st.html(note(_supposed(slug)))


def _row(name: str, slug: str, *, is_chosen: bool) -> Html:
    cells = join(_cell(name, term, change) for term, change in changes(name, shape_named(slug)).items())
    return fill(
        '<tr{chosen}><th scope="row"><button type="button" data-choose="{key}">{name}</button></th>{cells}</tr>',
        chosen=Html(' class="tbt-terms-chosen" aria-current="true"' if is_chosen else ""),
        key=name,
        name=t(f"terms.name_{name}"),
        cells=cells,
    )


def opened(name: object) -> None:
    """Opens the technique whose name or mark was clicked."""
    if isinstance(name, str) and name in TECHNIQUES:
        st.session_state["technique"] = name


def _cell(name: str, term: str, change: Change) -> Html:
    """A sign, how many times as much, and the word: a button that opens the technique."""
    has_ratio, word = change.mark in (Mark.DOWN, Mark.UP), t(f"terms.mark_{change.mark}")
    said = f"{written_ratio(change.ratio)} {word}" if has_ratio else word
    return fill(
        '<td class="tbt-term-{mark}"><button type="button" data-choose="{name}" aria-label="{label}">'
        '<b aria-hidden="true">{sign}</b> {ratio}<span>{word}</span></button></td>',
        mark=change.mark.value,
        name=name,
        label=f"{t(f'terms.name_{name}')}, {t(f'terms.term_{term}')}: {said}",
        sign=SIGNS[change.mark],
        ratio=fill("<i>{ratio}</i>", ratio=written_ratio(change.ratio)) if has_ratio else Html(""),
        word=word,
    )


def written_ratio(ratio: float) -> str:
    """How many times as much, never rounded to 1: 0.25×, 1.0001×, 40×."""
    digits = next((digits for digits in (2, 3, 4, 5) if round(ratio, digits) != 1), 6)
    return f"{ratio:,.0f}×" if ratio >= 9.95 else f"{ratio:.{digits}f}×"


def _supposed(slug: str) -> str:
    before, after = with_technique("heads", shape_named(slug))
    heads = [setup.shape.groups[0].attention for setup in (before, after)]
    experts = split_experts(shape_named(slug))[1].groups[0].feed_forward
    return t(
        "terms.supposed",
        model=models()[slug].name,
        n_prompt=count(N_PROMPT),
        n_new=count(SHORT_ANSWER),
        thought=count(LONG_THOUGHT),
        gamma=count(GAMMA),
        alpha=percent(ALPHA),
        batch=count(BATCH),
        chunk=count(CHUNK),
        heads=count(getattr(heads[0], "n_kv_heads", 0)),
        fewer=count(getattr(heads[1], "n_kv_heads", 0)),
        experts=count(getattr(experts, "n_experts", 0)),
        active=count(getattr(experts, "n_active", 0)),
    )
