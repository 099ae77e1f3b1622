"""The dialog behind a figure: what it is, its formula, the formula with this run's values, the result, the code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from core.engine.trace import Trace
from core.estimate.derivation import Factor
from core.estimate.probability import Named
from pages.shared.chances import DRAWN, OpenedChance, percent, probability
from pages.shared.derivations import OpenedFigure, Sibling, derivation_of
from pages.shared.html import Html, fill, join
from pages.shared.language import t
from pages.shared.names import step_name
from pages.shared.numbers import MINUS, count, gap_percent, milliseconds, scaled, scaled_bytes
from pages.shared.source_code import Source
from pages.shared.started import Started
from pages.shared.units import units

CSS = Path(__file__).resolve().parents[2] / "assets" / "opened.css"
# Pixels: formula and values side by side, each about as wide as a phone's screen.
WIDTH = 860
# How LaTeX's symbols are written in plain text, and those whose key in the catalogue is not that text.
_GLYPHS = {"\\mathrm": "", "\\tilde{z}": "z\u0303", "{": "", "}": "", "^*": "*", "\\max": "max"} | {
    "\\beta": "β",
    "\\lceil ": "⌈",
    " \\rceil": "⌉",
    "\\rho": "ρ",
    "\\Sigma": "Σ",
}
_SYMBOL_KEYS = {
    "β": "beta",
    "⌈n / β⌉": "blocks",
    "ρ": "rho",
    "Σ_V": "sum_all",
    "Σ_S": "sum_kept",
    "|S|": "n_kept_tokens",
    "i*": "i_best",
    "z_i*": "z_max",
    "z\u0303_i": "score_i",
    "z\u0303_max": "score_max",
    "z\u0303_i*": "score_max",
}


def show_opened(figure: str, started: Started, trace: Trace, step: int, waiting_seconds: float) -> None:
    """Opens the dialog of a figure that `derivations.is_figure` knows; call it once a click, also in a fragment."""
    opened = derivation_of(figure, started, trace, step, waiting_seconds=waiting_seconds)
    name, of_step = word(f"figure_{opened.name}"), step_name(step, trace.steps[step])
    if isinstance(opened, OpenedChance):
        name = word("figure_of_candidate", figure=name, place=opened.place + 1, step=of_step)
    elif not opened.of_the_run:
        name = word("figure_of_step", figure=name, step=of_step)
    st.dialog(name, width=WIDTH)(_show)(opened)


def word(key: str, **values: object) -> str:
    """A text of the derivations' own catalogue in the visitor's language."""
    return t(f"derivations.{key}", **values)


def _show(opened: OpenedFigure | OpenedChance) -> None:
    st.html(CSS)
    st.html(_block(_about(opened)))
    with st.container(key="opened_formulas", gap="xsmall"):
        in_symbols, in_values = st.columns(2)
        with in_symbols:
            _label(word("formula"))
            st.latex(opened.derivation.formula(word))
        with in_values:
            _label(word("substituted"))
            st.latex(opened.derivation.substituted())
        st.html(_block(join([_legend(opened), _source(opened)])))
    st.html(_block(_result(opened)))
    with st.expander(word("code")):
        for source in opened.sources:
            _code(source)


def _block(body: Html) -> Html:
    return fill('<div class="tbt-opened">{body}</div>', body=body)


def _label(text: str) -> None:
    st.html(_block(fill("<h3>{text}</h3>", text=text)))


def _about(opened: OpenedFigure | OpenedChance) -> Html:
    """The sentences; of a candidate also its token, which is text whatever stands in it."""
    if isinstance(opened, OpenedFigure):
        return join(fill("<p>{text}</p>", text=word(key)) for key in opened.about)
    token = fill("<p>{label} <bdi><b>{token}</b></bdi></p>", label=word("candidate"), token=opened.token)
    return join([token, *(fill("<p>{text}</p>", text=word(key, **opened.values)) for key in opened.about)])


def _legend(opened: OpenedFigure | OpenedChance) -> Html:
    """What each symbol stands for, and its value; times are named in the formula itself."""
    # Without a cache nothing is kept, however long the context is.
    keys = _SYMBOL_KEYS | ({"n": "n_kept"} if "about_not_kept" in opened.about else {})
    named = (factor for factor in opened.derivation.factors if isinstance(factor, Named) or type(factor.value) is int)
    return fill("<dl>{rows}</dl>", rows=join({_legend_row(factor, keys): None for factor in named}))


def _source(opened: OpenedFigure | OpenedChance) -> Html:
    """Where the formula comes from, where that is a matter of convention."""
    source = opened.derivation.source if isinstance(opened, OpenedFigure) else ""
    return fill('<p class="tbt-opened-source">{text}</p>', text=word(f"source_{source}")) if source else Html("")


def _legend_row(factor: Factor | Named, keys: Mapping[str, str]) -> Html:
    plain = factor.symbol
    for latex, glyph in _GLYPHS.items():
        plain = plain.replace(latex, glyph)
    symbol, _, below = plain.partition("_")
    subscript, value = ("", factor.shown) if isinstance(factor, Named) else (factor.subscript, count(int(factor.value)))
    key = "_".join(filter(None, (f"symbol_{keys.get(plain, plain)}", subscript)))
    below = word(subscript) if subscript else below
    return fill(
        "<div><dt><i>{symbol}</i>{below} = {value}</dt><dd>{text}</dd></div>",
        symbol=symbol,
        below=fill("<sub>{below}</sub>", below=below) if below else Html(""),
        value=value,
        text=word(key),
    )


def _result(opened: OpenedFigure | OpenedChance) -> Html:
    main, rounded = _amounts(opened.value, opened.derivation.unit)
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


def _amounts(value: int | float | None, unit: str) -> tuple[str, str]:
    """A value to the last digit, and rounded with a prefix where that says something new."""
    if value is None:
        return word("not_yet"), ""
    if unit == "probability":
        return probability(value), percent(value)
    if unit == "s":
        return f"{value * 1000:,.3f} ms", milliseconds(value) if value >= 1 else ""
    whole = int(value)
    exact = f"{count(whole)} {unit or word('pairs')}"
    if abs(whole) < 1000 or not unit:
        return exact, ""
    return exact, scaled_bytes(whole, units()) if unit == "B" else f"{scaled(whole)}{unit}"


def _compared(opened: OpenedFigure, sibling: Sibling) -> Html:
    """A sibling, and how far the two are apart; a gap of zero is shown."""
    own, unit = int(opened.value or 0), opened.derivation.unit
    value, reference = (own, sibling.value) if sibling.is_reference else (sibling.value, own)
    gap = value - reference
    share = f" ({gap_percent(value, reference)})" if gap and reference else ""
    return _compared_row(sibling.name, _amounts(sibling.value, unit)[0], f"{_signed(gap, unit)}{share}")


def _compared_chances(opened: OpenedChance) -> Html:
    """The candidate's other probability, and how far the filters moved it; of the two the model's is the reference."""
    unit = opened.derivation.unit
    gap = (opened.value - opened.other) * (1 if opened.name == DRAWN else -1)
    exact, rounded = _amounts(opened.other, unit)
    return _compared_row(opened.other_name, f"{exact} ({rounded})", _signed(gap, unit))


def _signed(gap: int | float, unit: str) -> str:
    return f"{'+' if gap > 0 else MINUS if gap < 0 else ''}{_amounts(abs(gap), unit)[0]}"


def _compared_row(name: str, amount: str, gap: str) -> Html:
    return fill(
        '<p class="tbt-opened-compared"><span>{name}</span><span>{amount}</span>'
        "<span>{gap_word} <b>{gap}</b></span></p>",
        name=word(f"figure_{name}"),
        amount=amount,
        gap_word=word("gap"),
        gap=gap,
    )


def _code(source: Source) -> None:
    _label(f"{source.path} · {source.name}")
    if source.code is None:
        st.html(_block(fill("<p>{text}</p>", text=word("no_code", name=source.name))))
    else:
        st.code(source.code)
