"""A setting of a page: what the address calls it, where the session keeps it, how its word is read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from re import fullmatch
from typing import Any

import streamlit as st

NONE = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what the address calls it, and where st.session_state keeps it.

    `read` takes the address's word for it and raises ValueError for anything but a sensible value; `write` is its
    reverse. Only the language is written even when it is the default: for another reader the default is another.
    `only_with` is another setting and its value: with any other value there, this one is not what the page shows, and
    stays out of the address.
    """

    page: str
    name: str
    key: str
    default: Callable[[], Any]
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    always: bool = False
    only_with: tuple[Setting, Any] | None = None

    @property
    def value(self) -> Any:
        """What it is now."""
        return st.session_state[self.key] if self.key in st.session_state else self.default()

    def counts(self, given: Mapping[str, Any]) -> bool:
        """Whether the page shows it, with what is `given`, by key, above what the session holds."""
        if self.only_with is None:
            return True
        other, wanted = self.only_with
        return bool(given.get(other.key, other.value) == wanted)


def one_of(*choices: Any) -> Callable[[str], Any]:
    """Reads one of the choices by its text."""
    by_name = {str(choice): choice for choice in choices}

    def read(word: str) -> Any:
        if word not in by_name:
            raise ValueError(word)
        return by_name[word]

    return read


def one_or_none(*choices: Any) -> Callable[[str], Any]:
    """Reads one of the choices by its text, and "none" as None."""
    read = one_of(NONE, *choices)
    return lambda word: None if read(word) == NONE else read(word)


def or_none(value: Any) -> str:
    """Writes what `one_or_none` reads."""
    return NONE if value is None else str(value)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number in [least, most]."""

    def read(word: str) -> int:
        if not fullmatch("[0-9]{1,10}", word) or not least <= int(word) <= most:
            raise ValueError(word)
        return int(word)

    return read


def several_of(choices: Callable[[], Iterable[Any]]) -> Callable[[str], list[Any]]:
    """Reads words with commas between them, each of them one of the choices and none twice; nothing is none of them."""

    def read(words: str) -> list[Any]:
        found = [one_of(*choices())(word) for word in words.split(",")] if words else []
        if len(set(found)) < len(found):
            raise ValueError(words)
        return found

    return read


def whole_numbers(words: str) -> str:
    """Reads whole numbers with commas or spaces between them, 64 at most; their text with commas."""
    found = words.replace(",", " ").split()
    if not 1 <= len(found) <= 64 or not all(fullmatch("[1-9][0-9]{0,6}", word) for word in found):
        raise ValueError(words)
    return ",".join(found)


def with_commas(values: Iterable[Any]) -> str:
    """Writes what `several_of` reads."""
    return ",".join(str(value) for value in values)


def decimal(most: float, least: float = 0.0) -> Callable[[str], float]:
    """Reads a plain decimal in [least, most]."""

    def read(word: str) -> float:
        if not fullmatch(r"[0-9]{1,7}(\.[0-9]{1,20})?", word) or not least <= float(word) <= most:
            raise ValueError(word)
        return float(word)

    return read


def switch(word: str) -> bool:
    """Reads 0 or 1."""
    return bool(one_of(0, 1)(word))


def plain(value: float) -> str:
    """A decimal without exponent and without superfluous zeros, exact: 0.7, 1."""
    digits = format(Decimal(repr(float(value))), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def as_digit(value: bool) -> str:
    """Writes what `switch` reads."""
    return str(int(value))
