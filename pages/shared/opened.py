"""The dialog behind a figure: what it is, its formula, the formula with this run's values, the result, the code."""

from __future__ import annotations

import streamlit as st

from core.engine.begun import Begun
from core.engine.trace import Trace
from core.estimate.probability import Named
from pages.shared.chances import DRAWN, OpenedChance
from pages.shared.derivations import OpenedFigure, Sibling, derivation_of
from pages.shared.html import Html, fill, join
from pages.shared.names import step_name
from pages.shared.numbers import gap_percent
from pages.shared.opened_parts import (
    CSS,
    SYMBOL_KEYS,
    WIDTH,
    amounts,
    block,
    code_block,
    compared_row,
    formulas,
    legend_row,
    signed,
    source_line,
    word,
)


def show_opened(figure: str, started: Begun, trace: Trace, step: int, waiting_seconds: float) -> None:
    """Opens the dialog of a figure that `derivations.is_figure` knows; call it once a click, also in a fragment."""
    opened = derivation_of(figure, started, trace, step, waiting_seconds=waiting_seconds)
    name, of_step = word(f"figure_{opened.name}"), step_name(step, trace.steps[step])
    if isinstance(opened, OpenedChance):
        name = word("figure_of_candidate", figure=name, place=opened.place + 1, step=of_step)
    elif not opened.of_the_run:
        name = word("figure_of_step", figure=name, step=of_step)
    st.dialog(name, width=WIDTH)(_show)(opened)


def _show(opened: OpenedFigure | OpenedChance) -> None:
    st.html(CSS)
    st.html(block(_about(opened)))
    origin = source_line(opened.derivation) if isinstance(opened, OpenedFigure) else Html("")
    formulas(opened.derivation, join([_legend(opened), origin]))
    st.html(block(_result(opened)))
    with st.expander(word("code")):
        for source in opened.sources:
            code_block(source)


def _about(opened: OpenedFigure | OpenedChance) -> Html:
    """The sentences; of a candidate also its token, which is text whatever stands in it."""
    if isinstance(opened, OpenedFigure):
        return join(fill("<p>{text}</p>", text=word(key)) for key in opened.about)
    token = fill("<p>{label} <bdi><b>{token}</b></bdi></p>", label=word("candidate"), token=opened.token)
    return join([token, *(fill("<p>{text}</p>", text=word(key, **opened.values)) for key in opened.about)])


def _legend(opened: OpenedFigure | OpenedChance) -> Html:
    """What each symbol stands for, and its value; times are named in the formula itself."""
    # Without a cache nothing is kept, however long the context is.
    keys = SYMBOL_KEYS | ({"n": "n_kept"} if "about_not_kept" in opened.about else {})
    named = (factor for factor in opened.derivation.factors if isinstance(factor, Named) or type(factor.value) is int)
    return fill("<dl>{rows}</dl>", rows=join({legend_row(factor, keys): None for factor in named}))


def _result(opened: OpenedFigure | OpenedChance) -> Html:
    main, rounded = amounts(opened.value, opened.derivation.unit)
    if isinstance(opened, OpenedChance):
        rows = _compared_chances(opened)
    else:
        rows = join(_compared(opened, sibling) for sibling in opened.siblings)
    return fill(
        '<h3>{label}</h3><p class="tbt-opened-result">{main}{rounded}</p>{compared}',
        label=word("result"),
        main=main,
        rounded=fill("<small>{text}</small>", text=rounded) if rounded else Html(""),
        compared=fill("<h3>{label}</h3>{rows}", label=word("compared"), rows=rows) if rows else rows,
    )


def _compared(opened: OpenedFigure, sibling: Sibling) -> Html:
    """A sibling, and how far the two are apart; a gap of zero is shown."""
    own, unit = int(opened.value or 0), opened.derivation.unit
    value, reference = (own, sibling.value) if sibling.is_reference else (sibling.value, own)
    gap = value - reference
    share = f" ({gap_percent(value, reference)})" if gap and reference else ""
    return compared_row(sibling.name, amounts(sibling.value, unit)[0], f"{signed(gap, unit)}{share}")


def _compared_chances(opened: OpenedChance) -> Html:
    """The candidate's other probability, and how far the filters moved it; of the two the model's is the reference."""
    unit = opened.derivation.unit
    gap = (opened.value - opened.other) * (1 if opened.name == DRAWN else -1)
    exact, rounded = amounts(opened.other, unit)
    return compared_row(opened.other_name, f"{exact} ({rounded})", signed(gap, unit))
