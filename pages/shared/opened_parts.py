"""What the dialogs behind figures are made of: formula, legend, result, comparison, code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from core.estimate.derivation import Derivation, Factor
from core.estimate.probability import Named, Probability, percent, probability
from core.words import catalogue
from pages.shared.html import Html, fill
from pages.shared.language import t
from pages.shared.numbers import MINUS, count, milliseconds, scaled, scaled_bytes
from pages.shared.source_code import Source
from pages.shared.units import units

CSS = Path(__file__).resolve().parents[2] / "assets" / "opened.css"
# Pixels: formula and values side by side, each about as wide as a phone's screen.
WIDTH = 860
# How LaTeX's symbols are written in plain text, and those whose key in the catalogue is not that text.
GLYPHS = {"\\mathrm": "", "\\tilde{z}": "z\u0303", "{": "", "}": "", "^*": "*", "\\max": "max"} | {
    "\\beta": "β",
    "\\lceil ": "⌈",
    " \\rceil": "⌉",
    "\\rho": "ρ",
    "\\omega": "ω",
    "\\pi": "π",
    "\\Sigma": "Σ",
}
SYMBOL_KEYS = {
    "β": "beta",
    "ω": "omega",
    "π": "pi",
    "(d_nope + d_rope)": "d_qk",
    "(r_kv + d_rope)": "d_latent",
    "⌈M_w/N⌉": "M_w_shared_out",
    "⌈n_kv/N⌉": "n_kv_shared_out",
    "⌈w/β⌉": "blocks_of_a_row",
    "⌈n / β⌉": "blocks",
    "ρ": "rho",
    "Σ_V": "sum_all",
    "Σ_S": "sum_kept",
    "|S|": "n_kept_tokens",
    "(L h)": "all_heads",
    "i*": "i_best",
    "z_i*": "z_max",
    "z\u0303_i": "score_i",
    "z\u0303_max": "score_max",
    "z\u0303_i*": "score_max",
}


def word(key: str, **values: object) -> str:
    """A text of the derivations' own catalogue in the visitor's language."""
    return t(f"derivations.{key}", **values)


def block(body: Html) -> Html:
    return fill('<div class="tbt-opened">{body}</div>', body=body)


def label(text: str) -> None:
    st.html(block(fill("<h3>{text}</h3>", text=text)))


def legend_row(factor: Factor | Named, keys: Mapping[str, str]) -> Html:
    plain = factor.symbol
    for latex, glyph in GLYPHS.items():
        plain = plain.replace(latex, glyph)
    plain = re.sub(r"\^\(\d+\)$", "", plain)  # which group of layers it is stands beside the symbol
    symbol, _, below = plain.partition("_")
    subscript, value = ("", factor.shown) if isinstance(factor, Named) else (factor.subscript, count(int(factor.value)))
    base = f"symbol_{keys.get(plain, plain)}"
    key = f"{base}_{subscript}" if subscript and f"derivations.{base}_{subscript}" in catalogue("en") else base
    below = word(subscript) if subscript else below
    return fill(
        "<div><dt><i>{symbol}</i>{below} = {value}</dt><dd>{text}</dd></div>",
        symbol=symbol,
        below=fill("<sub>{below}</sub>", below=below) if below else Html(""),
        value=value,
        text=word(key),
    )


def source_line(derivation: Derivation) -> Html:
    """Where the formula comes from, where that is a matter of convention."""
    source = derivation.source
    return fill('<p class="tbt-opened-source">{text}</p>', text=word(f"source_{source}")) if source else Html("")


def formulas(derivation: Derivation | Probability, below: Html) -> None:
    """Formula and formula with its values, side by side, and what stands below both."""
    with st.container(key="opened_formulas", gap="xsmall"):
        in_symbols, in_values = st.columns(2)
        with in_symbols:
            label(word("formula"))
            st.latex(derivation.formula(word))
        with in_values:
            label(word("substituted"))
            st.latex(derivation.substituted())
        st.html(block(below))


def amounts(value: int | float | None, unit: str) -> tuple[str, str]:
    """A value to the last digit, and rounded with a prefix where that says something new."""
    if value is None:
        return word("not_yet"), ""
    if unit == "probability":
        return probability(value), percent(value)
    if unit == "s":
        return f"{value * 1000:,.3f} ms", milliseconds(value) if value >= 1 else ""
    if unit == "FLOP/B":
        return f"{value:,.4g} FLOP/B", ""
    whole = int(value)
    if not unit:
        return (count(whole) if whole == value else f"{value:,.2f}"), ""
    exact = f"{count(whole)} {word(unit) if unit == 'pairs' else unit}"
    if abs(whole) < 1000 or unit == "pairs":
        return exact, ""
    return exact, scaled_bytes(whole, units()) if unit == "B" else f"{scaled(whole)}{unit}"


def signed(gap: int | float, unit: str) -> str:
    return f"{'+' if gap > 0 else MINUS if gap < 0 else ''}{amounts(abs(gap), unit)[0]}"


def compared_row(name: str, amount: str, gap: str) -> Html:
    return fill(
        '<p class="tbt-opened-compared"><span>{name}</span><span>{amount}</span>'
        "<span>{gap_word} <b>{gap}</b></span></p>",
        name=word(f"figure_{name}"),
        amount=amount,
        gap_word=word("gap"),
        gap=gap,
    )


def code_block(source: Source) -> None:
    label(f"{source.path} · {source.name}")
    if source.code is None:
        st.html(block(fill("<p>{text}</p>", text=word("no_code", name=source.name))))
    else:
        st.code(source.code)
