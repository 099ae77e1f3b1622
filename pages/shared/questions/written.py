"""Figures, settings and answers of a question as text in the visitor's language and units."""

from __future__ import annotations

from math import isinf

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.dtypes import kv_dtypes
from core.estimate.query import shape_numbers
from core.questions.question import SHORT_CONTEXT, Amount, Answer, Given, Outcome, Quantity, Question, Table
from core.questions.reckoned_memory import k_of
from pages.shared.figures.questions import SEPARATOR
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds, scaled, scaled_bytes
from pages.shared.units import units

_PREFIXES = {"binary": ("B", "KiB", "MiB", "GiB"), "decimal": ("B", "kB", "MB", "GB")}
_STEPS = {"binary": 1024, "decimal": 1000}


def number(value: float) -> str:
    """Three significant figures, whole numbers with separators: 0.438, 6.58, 15,317."""
    if isinf(value):
        return "∞"
    return count(round(value)) if value >= 99.95 else f"{value:.3g}"


def plain(quantity: Quantity) -> str:
    """A figure inside a sentence; the sentence itself says what tokens and parameters are."""
    value = quantity.value
    match quantity.unit:
        case "B":
            return scaled_bytes(round(value), units())
        case "FLOP":
            return f"{scaled(value)}FLOP"
        case "s":
            return milliseconds(value)
        case "times":
            return f"{number(value)}×"
        case "percent":
            return f"{number(value)}%"
        case "" if value >= 1e6:
            return scaled(value)
    return number(value)


def alone(quantity: Quantity) -> str:
    """A figure that stands by itself, its unit beside it."""
    return t("questions.in_tokens", value=plain(quantity)) if quantity.unit == "tokens" else plain(quantity)


def unit_of(amount: Amount) -> str:
    """What a number is asked for in: "GiB", "×", "%", "tokens"."""
    if amount.unit == "B":
        return _PREFIXES[units()][amount.power]
    return {"times": "×", "percent": "%"}.get(amount.unit, amount.unit)


def base_value(amount: Amount, typed: float) -> float:
    """A typed number in base units."""
    return typed * _STEPS[units()] ** amount.power if amount.unit == "B" else typed


def thousand_of(amount: Amount) -> int:
    """How many of a prefix make the next, as numbers are asked for and written."""
    return _STEPS[units()] if amount.unit == "B" else 1000


def given_words(given: Given) -> dict[str, str]:
    """All settings by what they are called, and what follows from them, to fill a question with."""
    numbers = shape_numbers(given.shape)
    stored = kv_dtypes(given.kv_dtype).k.without_scales
    return {
        "model": name_of("model", given.model),
        "other": name_of("other", given.other),
        "card": name_of("card", given.card),
        "other_card": name_of("other_card", given.other_card),
        **{name: count(getattr(given, name)) for name in ("n", "n_new", "batch", "ranks", "gamma", "alpha_percent")},
        "kv_dtype": given.kv_dtype,
        "live": given.live,
        "twice": count(2 * given.n),
        "first": count(given.n // 16),
        "base": count(SHORT_CONTEXT),
        "k": count(k_of(given.shape.context_limit)),
        "bits": number(8 * stored.bytes_per_number),
        "layers": count(given.shape.n_layers),
        "head_dim": count(numbers.get("head_dim", 0)),
        "heads": count(numbers.get("n_heads", 0)),
        "kv_heads": count(numbers.get("n_kv_heads", 0)),
    }


def name_of(dial: str, value: str | int) -> str:
    """A setting's value as people call it."""
    if dial in ("model", "other"):
        return catalogue.model_named(str(value)).name
    if dial in ("card", "other_card"):
        return accelerator_named(str(value)).name
    return count(value) if isinstance(value, int) else value


def settings_line(question: Question, given: Given) -> str:
    """What the learner set, in one line."""
    parts = [
        t(
            "questions.setting",
            name=t(f"questions.dial_{dial.name}"),
            value=name_of(dial.name, getattr(given, dial.name)),
        )
        for dial in question.dials
    ]
    return SEPARATOR.join(parts)


def asked(question: Question, given: Given) -> str:
    """The question with its settings in it."""
    return t(f"questions.{question.key}_ask", **given_words(given))


def why(question: Question, given: Given, outcome: Outcome) -> str:
    """The sentence that the figures prove."""
    facts = {name: plain(quantity) for name, quantity in outcome.facts.items()}
    case = f"_{outcome.case}" if outcome.case else ""
    return t(f"questions.{question.key}_why{case}", **(given_words(given) | facts))


def answer_words(question: Question, answer: Answer) -> str:
    """An answer in words: a figure, a choice, the heights of a curve, the choices of a table."""
    prediction, key = question.prediction, question.key
    match answer:
        case str():
            return t(f"questions.{key}_choice_{answer}")
        case tuple() if isinstance(prediction, Table):
            return SEPARATOR.join(t(f"questions.{key}_choice_{part}") for part in answer)
        case tuple():
            return " → ".join(plain(Quantity(height, "times")) for height in (1.0, *map(float, answer)))
    unit = prediction.unit if isinstance(prediction, Amount) else ""
    return alone(Quantity(answer, unit))
