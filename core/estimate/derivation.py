"""A figure with the way it came about: named factors, multiplied and added up.

Value, formula and substituted formula all come from the same terms, so that what is shown cannot differ from what is
computed. LaTeX is limited to what KaTeX knows; words enter it only through the caller's `words`, as \\text{…}.
A float among the values is a time in seconds and is shown in milliseconds, unless it is a `Real`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

Unit = Literal["FLOP", "B", "s", "FLOP/B", "pairs", ""]
Words = Callable[[str], str]

_SPECIAL = {character: f"\\{character}" for character in "{}$&#%_"} | {
    "\\": "\\textbackslash{}",
    "^": "\\textasciicircum{}",
    "~": "\\textasciitilde{}",
}


class Real(float):
    """A number that need not be whole and is no time: an expectation, FLOP a byte."""

    def __abs__(self) -> Real:
        return Real(super().__abs__())


class Factor(NamedTuple):
    """(value + plus) to a power, written as its symbol; a factor without a symbol is a plain number.

    `subscript` is the key of a word. A named tuple, not a dataclass: a decode step makes some thirty, in microseconds.
    """

    symbol: str
    value: int | float
    subscript: str = ""
    power: int = 1
    plus: int = 0

    @property
    def amount(self) -> int | float:
        """What it contributes to the product."""
        return (self.value + self.plus) ** self.power

    def formula(self, words: Words) -> str:
        """The factor as a symbol."""
        if not self.symbol:
            return latex_number(self.value)
        if not self.subscript:
            return self._dressed(self.symbol)
        label = latex_text(words(self.subscript))
        return self._dressed(f"{self.symbol}^{{({label})}}" if "_" in self.symbol else f"{self.symbol}_{{{label}}}")

    def substituted(self) -> str:
        """The factor as its value."""
        return self._dressed(latex_number(self.value))

    def _dressed(self, latex: str) -> str:
        if self.plus:
            latex = f"({latex} {'+' if self.plus > 0 else '-'} {abs(self.plus)})"
        return latex if self.power == 1 else f"{{{latex}}}^{{{self.power}}}"


TWO, THREE, FOUR = (Factor("", number) for number in (2, 3, 4))


class Term(NamedTuple):
    """A product of factors, one summand of a figure; `name` is the key of the words below its brace.

    `over` divides the product; it is for counts that divide without a rest.
    """

    factors: tuple[Factor, ...]
    name: str = ""
    sign: Literal[1, -1] = 1
    over: int = 1

    @property
    def value(self) -> int | float:
        """The product, its sign included; a `Real` where one of the factors is."""
        product = self.sign * prod([factor.amount for factor in self.factors])
        if isinstance(product, float) and any(isinstance(factor.value, Real) for factor in self.factors):
            return Real(product / self.over)
        return product if self.over == 1 else product // self.over

    def formula(self, words: Words) -> str:
        """The product of its symbols; a dot before each further plain number."""
        latex = self.factors[0].formula(words)
        for factor in self.factors[1:]:
            latex += ("\\, " if factor.symbol else " \\cdot ") + factor.formula(words)
        return self._divided(latex)

    def substituted(self) -> str:
        """The product of its values."""
        return self._divided(" \\cdot ".join(factor.substituted() for factor in self.factors))

    def _divided(self, latex: str) -> str:
        return latex if self.over == 1 else f"\\frac{{{latex}}}{{{self.over}}}"


@dataclass(frozen=True, slots=True)
class Derivation:
    """symbol = sum of the terms, divided by the product of `over` where there is one; the value is in `unit`.

    `source` is the key of the word that says where the formula comes from: "chapter", "counted", "format" … A quotient
    that is `floored` is rounded down: how many of a thing fit.
    """

    symbol: str
    terms: tuple[Term, ...]
    unit: Unit = ""
    over: tuple[Factor, ...] = ()
    source: str = ""
    floored: bool = False

    @property
    def value(self) -> int | float:
        """The figure. ZeroDivisionError where the divisor is zero."""
        if self.floored:
            return self._total // self._divisor
        return self._total / self._divisor if self.over else self._total

    @property
    def whole(self) -> int:
        """The figure of a derivation whose factors are whole numbers, exact at any size."""
        value = self.value
        if not isinstance(value, int):
            raise TypeError(f"{self.symbol} is not a whole number")
        return value

    @property
    def factors(self) -> Iterator[Factor]:
        """Every named factor once, in the order of the formula."""
        everywhere = [*(factor for term in self.terms for factor in term.factors), *self.over]
        yield from {(f.symbol, f.subscript, f.value): f for f in everywhere if f.symbol}.values()

    def formula(self, words: Words) -> str:
        """LaTeX in symbols: one term a line, its name below it where there are several."""
        if self.over:
            numerator = _signed(self.terms, [term.formula(words) for term in self.terms])
            divisor = _alone([factor.formula(words) for factor in self.over])
            return f"{self.symbol} = {self._quotient(' '.join(numerator), divisor)}"
        several = len(self.terms) > 1
        names = [latex_text(words(term.name)) if term.name and several else "" for term in self.terms]
        return self._sum(_braced([term.formula(words) for term in self.terms], names))

    def substituted(self) -> str:
        """The same LaTeX with the values in it; below each product of a sum stands what it comes to."""
        if self.over:
            numerator = _signed(self.terms, [term.substituted() for term in self.terms])
            divisor = _alone([factor.substituted() for factor in self.over])
            lines = [
                self._quotient(" ".join(numerator), divisor),
                self._quotient(latex_number(self._total), latex_number(self._divisor)),
            ]
            return _aligned(self.symbol, list(dict.fromkeys(lines)), "= ")
        several = len(self.terms) > 1
        values = [latex_number(abs(t.value)) if several and len(t.factors) > 1 else "" for t in self.terms]
        return self._sum(_braced([term.substituted() for term in self.terms], values))

    @property
    def _total(self) -> int | float:
        total = sum([term.value for term in self.terms])
        is_real = any(isinstance(factor.value, Real) for term in self.terms for factor in term.factors)
        return Real(total) if is_real else total

    @property
    def _divisor(self) -> int | float:
        product = prod([factor.amount for factor in self.over])
        return Real(product) if any(isinstance(factor.value, Real) for factor in self.over) else product

    def _quotient(self, numerator: str, divisor: str) -> str:
        quotient = f"\\frac{{{numerator}}}{{{divisor}}}"
        return f"\\left\\lfloor {quotient} \\right\\rfloor" if self.floored else quotient

    def _sum(self, terms: list[str]) -> str:
        return _aligned(self.symbol, _signed(self.terms, terms), "\\quad ")


def latex_number(value: int | float) -> str:
    """A whole number with separators that take no space of their own: 1{,}082{,}880; seconds as milliseconds."""
    if isinstance(value, int | Real):
        return (f"{value:,}" if isinstance(value, int) else f"{value:,.12g}").replace(",", "{,}")
    return f"{value * 1000:,.3f}".replace(",", "{,}") + "\\,\\mathrm{ms}"


def latex_text(text: str) -> str:
    """Words in a formula; nothing in them is a command."""
    return f"\\text{{{''.join(_SPECIAL.get(character, character) for character in text)}}}"


def _braced(bodies: Iterable[str], labels: Iterable[str]) -> list[str]:
    pairs = zip(bodies, labels, strict=True)
    return [f"\\underbrace{{{body}}}_{{{label}}}" if label else body for body, label in pairs]


def _signed(terms: tuple[Term, ...], bodies: list[str]) -> list[str]:
    """The summands with plus and minus before them; a leading plus is not written."""
    signs = ["-" if term.sign < 0 else "+" if position else "" for position, term in enumerate(terms)]
    return [f"{sign} {body}".strip() for sign, body in zip(signs, bodies, strict=True)]


def _alone(factors: list[str]) -> str:
    """A divisor; the parentheses of a single factor have nothing to hold together."""
    only = factors[0] if len(factors) == 1 else ""
    return only[1:-1] if only.startswith("(") and only.endswith(")") else " \\cdot ".join(factors)


def _aligned(symbol: str, lines: list[str], lead: str) -> str:
    """The lines one below the other; the first stands behind the equals sign."""
    if len(lines) == 1:
        return f"{symbol} = {lines[0]}"
    rows = [f"{symbol} &= {lines[0]}", *(f"&{lead}{line}" for line in lines[1:])]
    return "\\begin{aligned} " + " \\\\[3pt] ".join(rows) + " \\end{aligned}"
