"""The probability of one possible next token with the way it came about: the model's own, and the one it is drawn with.

Both are softmaxes over logits; the sums are recorded when a step is sampled (core.model.sampling), so a probability is
reckoned again here from the very terms that are shown. Logits and probabilities have no unit. Formulas hold symbols
only, no words, and LaTeX is limited to what KaTeX knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from core.estimate.derivation import Words

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Named(NamedTuple):
    """A symbol of a formula in LaTeX, and its value as it is shown."""

    symbol: str
    shown: str


class Probability(Protocol):
    """What a dialog asks of a probability: its value, its formula in symbols and in numbers, what the symbols mean."""

    unit: ClassVar[str]

    @property
    def value(self) -> float: ...

    @property
    def factors(self) -> Iterator[Named]: ...

    def formula(self, words: Words) -> str: ...

    def substituted(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProbability:
    """p_i = exp(z_i − z_max) / Σ_j exp(z_j − z_max), over the whole vocabulary, at temperature 1.

    `logit` is z_i, `best` the largest logit z_max, `total` the sum, `n_tokens` the size V of the vocabulary.
    """

    logit: float
    best: float
    total: float
    n_tokens: int
    unit: ClassVar[str] = "probability"

    @property
    def value(self) -> float:
        """The probability in [0, 1]."""
        return self._weight / self.total

    @property
    def factors(self) -> Iterator[Named]:
        """Every symbol once."""
        yield Named("z_i", plain(self.logit))
        yield Named("z_{\\max}", plain(self.best))
        yield Named("V", f"{self.n_tokens:,}")
        yield Named("\\Sigma_V", plain(self.total))

    def formula(self, words: Words) -> str:
        """LaTeX in symbols."""
        return "p_i = \\frac{\\exp(z_i - z_{\\max})}{\\sum_{j=1}^{V} \\exp(z_j - z_{\\max})}"

    def substituted(self) -> str:
        """The same with the values in it, then numerator and sum as they come out."""
        return _rows(
            f"p_i &= \\frac{{\\exp({_difference(self.logit, self.best)})}}{{{latex(self.total)}}}",
            f"&= \\frac{{{latex(self._weight)}}}{{{latex(self.total)}}}",
        )

    @property
    def _weight(self) -> float:
        return math.exp(self.logit - self.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnProbability:
    """p'_i = exp((z_i − z_max) / T) / Σ_{j in S} exp((z_j − z_max) / T) over the set S of kept tokens; 0 outside of S.

    `score` is z_i and `best` z_max, both after the repetition penalty, which made `score` of `logit`; `total` is the
    sum, `n_kept` the size of S, `kept` whether this token is in it.
    """

    logit: float
    score: float
    best: float
    total: float
    n_kept: int
    kept: bool
    temperature: float
    penalty: float = 1.0
    unit: ClassVar[str] = "probability"

    @property
    def value(self) -> float:
        """The probability in [0, 1]."""
        return self._weight / self.total if self.kept else 0.0

    @property
    def factors(self) -> Iterator[Named]:
        """Every symbol once."""
        if self.penalty != 1:
            yield Named("z_i", plain(self.logit))
            yield Named("\\rho", plain(self.penalty))
        yield Named(f"{self._z}_i", plain(self.score))
        yield Named(f"{self._z}_{{\\max}}", plain(self.best))
        yield Named("T", plain(self.temperature))
        yield Named("|S|", f"{self.n_kept:,}")
        yield Named("\\Sigma_S", plain(self.total))

    def formula(self, words: Words) -> str:
        """LaTeX in symbols; a token that is not kept has both cases."""
        best = f"{self._z}_{{\\max}}"
        above, below = (f"\\exp(({self._z}_{index} - {best})/T)" for index in "ij")
        share = f"\\dfrac{{{above}}}{{\\sum_{{j \\in S}} {below}}}"
        if not self.kept:
            share = f"\\begin{{cases}} {share} & i \\in S \\\\[3pt] 0 & i \\notin S \\end{{cases}}"
        if self.penalty == 1:
            return f"p'_i = {share}"
        made = self._penalised("z_i", "\\rho")
        return _rows(f"{self._z}_i &= {made}", f"p'_i &= {share}")

    def substituted(self) -> str:
        """The same with the values in it, then numerator and sum as they come out."""
        rows = []
        if self.penalty != 1:
            made = self._penalised(latex(self.logit), latex(self.penalty))
            result = f" = {latex(self.score)}" if self.score != self.logit else ""
            rows.append(f"{self._z}_i &= {made}{result}")
        if self.kept:
            exponent = f"({_difference(self.score, self.best)})/{latex(self.temperature)}"
            rows.append(f"p'_i &= \\frac{{\\exp({exponent})}}{{{latex(self.total)}}}")
            rows.append(f"&= \\frac{{{latex(self._weight)}}}{{{latex(self.total)}}}")
        else:
            rows.append("p'_i &= 0 \\quad (i \\notin S)")
        return _rows(*rows)

    @property
    def _weight(self) -> float:
        return math.exp((self.score - self.best) / self.temperature)

    @property
    def _z(self) -> str:
        return "z" if self.penalty == 1 else "\\tilde{z}"

    def _penalised(self, logit: str, penalty: str) -> str:
        """What the penalty did to this logit, written with these."""
        if self.score == self.logit:
            return logit
        return f"{logit} / {penalty}" if self.logit > 0 else f"{logit} \\cdot {penalty}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyProbability:
    """p'_i = 1 for the token with the largest logit, 0 for every other: temperature 0.

    `score` is z_i and `best` the largest logit, both after the repetition penalty where there is one (`penalised`);
    `token_id` is i, `best_id` the token that is taken.
    """

    score: float
    best: float
    token_id: int
    best_id: int
    penalised: bool = False
    unit: ClassVar[str] = "probability"

    @property
    def value(self) -> float:
        """1 or 0."""
        return float(self.token_id == self.best_id)

    @property
    def factors(self) -> Iterator[Named]:
        """Every symbol once."""
        yield Named("i", str(self.token_id))
        yield Named("i^*", str(self.best_id))
        yield Named(f"{self._z}_i", plain(self.score))
        yield Named(f"{self._z}_{{i^*}}", plain(self.best))

    def formula(self, words: Words) -> str:
        """LaTeX in symbols."""
        cases = "\\begin{cases} 1 & i = i^* \\\\ 0 & i \\ne i^* \\end{cases}"
        return _rows(f"i^* &= \\operatorname{{argmax}}_j {self._z}_j", f"p'_i &= {cases}")

    def substituted(self) -> str:
        """The two tokens by their ids, the logits by which one was taken, and what follows."""
        i, best, is_best = self.token_id, self.best_id, self.token_id == self.best_id
        logits = [f"{self._z}_{{{best}}} &= {latex(self.best)}"]
        if not is_best:
            logits.append(f"{self._z}_{{{i}}} &= {latex(self.score)} \\le {latex(self.best)}")
        return _rows(f"i^* &= {best}", *logits, f"p'_{{{i}}} &= {int(is_best)}")

    @property
    def _z(self) -> str:
        return "\\tilde{z}" if self.penalised else "z"


def significant(value: float, digits: int = 4, least: int = 3) -> str:
    """`digits` significant digits; from 1 up at least so many decimals, so that differences of logits keep theirs.

    12.346, -0.5012, 1,234.568, 1.235e-07. Zeros at the end are left out; what would be rounded to 1 or to 100, the
    bounds of a share, gets as many digits as show that it is not.
    """
    small = abs(value) < 1 or abs(value) >= 1e6
    decimals = 0 if small else max(least, digits - len(str(int(abs(value)))))
    text = f"{value:.{digits}g}" if small else f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
    is_rounded = text in ("1", "100") and value != int(text) and digits < 12
    return significant(value, digits + 2, least) if is_rounded else text


def plain(value: float, digits: int = 4, least: int = 3) -> str:
    """A number for text: 0.03568, −12.346, 1.235 × 10⁻⁷."""
    base, _, exponent = significant(value, digits, least).partition("e")
    tail = f" × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if exponent else ""
    return f"{base.replace('inf', '∞')}{tail}".replace("-", "−")


def probability(value: float) -> str:
    """A probability with six significant digits: 0.0356781, 1.23457 × 10⁻⁹."""
    return plain(value, digits=6)


def percent(value: float) -> str:
    """The same in percent, with four: 3.568%, 1.235 × 10⁻⁷%."""
    return f"{plain(100 * value, least=0)}%"


def latex(value: float) -> str:
    """The same number in a formula."""
    base, _, exponent = significant(value).replace(",", "{,}").partition("e")
    return base.replace("inf", "\\infty") + (f" \\cdot 10^{{{int(exponent)}}}" if exponent else "")


def _difference(value: float, best: float) -> str:
    """value − best; a negative number behind the minus is set in parentheses."""
    return f"{latex(value)} - {latex(best) if best >= 0 else f'({latex(best)})'}"


def _rows(*rows: str) -> str:
    return "\\begin{aligned} " + " \\\\[5pt] ".join(rows) + " \\end{aligned}"
