"""A derivation as plain text, for a terminal or a table cell: one line, of the same terms as its LaTeX."""

from __future__ import annotations

from collections.abc import Callable

from core.estimate.derivation import Derivation, Factor, Real, Term, Words

_GLYPHS = {
    "\\mathrm": "",
    "{": "",
    "}": "",
    "\\pi": "π",
    "\\omega": "ω",
    "\\lceil ": "⌈",
    "\\lceil": "⌈",
    " \\rceil": "⌉",
    "\\beta": "β",
    "\\max": "max",
    "\\infty": "∞",
    "^*": "*",
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
Written = Callable[[Factor], str]


def as_text(derivation: Derivation, words: Words) -> str:
    """M_KV = 2·B·L·n_kv·n·d_h·b_kv = 2·1·32·8·4,096·128·2 = 536,870,912 B."""

    def symbol(factor: Factor) -> str:
        if not factor.symbol:
            return _number(factor.value)
        return glyphs(factor.symbol) + (f"[{words(factor.subscript)}]" if factor.subscript else "")

    sides = [_side(derivation, symbol), _side(derivation, lambda factor: _number(factor.value))]
    result = f"{_number(derivation.value)} {derivation.unit}".rstrip()
    return " = ".join(dict.fromkeys([glyphs(derivation.symbol), *sides, result]))


def glyphs(latex: str) -> str:
    """A symbol without LaTeX's commands: n_kv, ⌈n / β⌉."""
    for command, glyph in _GLYPHS.items():
        latex = latex.replace(command, glyph)
    return latex


def _side(derivation: Derivation, written: Written) -> str:
    total = "".join(
        f"{' − ' if term.sign < 0 else ' + ' if place else ''}{_term(term, written)}"
        for place, term in enumerate(derivation.terms)
    )
    if not derivation.over:
        return total
    divisor = "·".join(_factor(factor, written) for factor in derivation.over)
    above = f"({total})" if len(derivation.terms) > 1 else total
    quotient = f"{above} / {f'({divisor})' if len(derivation.over) > 1 else divisor}"
    return f"⌊{quotient}⌋" if derivation.floored else quotient


def _term(term: Term, written: Written) -> str:
    product = "·".join(_factor(factor, written) for factor in term.factors)
    return product if term.over == 1 else f"{product}/{term.over}"


def _factor(factor: Factor, written: Written) -> str:
    text = written(factor)
    if factor.plus:
        text = f"({text}{'+' if factor.plus > 0 else '−'}{abs(factor.plus)})"
    return text if factor.power == 1 else f"{text}{str(factor.power).translate(_SUPERSCRIPTS)}"


def _number(value: int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Real):
        return f"{value:,.12g}"
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.6g}"
