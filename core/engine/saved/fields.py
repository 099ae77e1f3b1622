"""Typed reading of a saved run's header: each value is checked once, and refused by its place."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from core.refusal import Refusal

MOST_NUMBER = 2**53  # larger whole numbers would not arrive in a browser as they are
LONGEST_SHOWN = 60


def wrong(field: str) -> Refusal:
    """The refusal of an entry that is missing or cannot be."""
    return Refusal("saved.field_wrong", field=field[:LONGEST_SHOWN])


class Entry:
    """An object of the header. `where` is how a sentence names it."""

    def __init__(self, values: object, where: str = "") -> None:
        if not isinstance(values, dict):
            raise wrong(where or "{}")
        self._values: dict[str, Any] = values
        self._where = where

    def whole(self, name: str, *, least: int = 0, most: int = MOST_NUMBER) -> int:
        """A whole number in [least, most]."""
        return self._whole(self._get(name), name, least, most)

    def wholes(self, name: str, *, most: int, at_most: int) -> tuple[int, ...]:
        """At most `at_most` whole numbers in [0, most]."""
        return tuple(self._whole(value, name, 0, most) for value in self._list(name, at_most))

    def number(self, name: str, *, least: float = 0.0, most: float = 1e15) -> float:
        """A finite number in [least, most]."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name)
        if not (abs(value) < 1e300 and math.isfinite(value) and least <= value <= most):
            raise self.wrong(name)
        return float(value)

    def score(self, name: str) -> float:
        """A logit: a finite number, or null for the −∞ of what can never come."""
        return -math.inf if self.is_null(name) else self.number(name, least=-1e15)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value

    def text(self, name: str, *, longest: int) -> str:
        """A text of at most so many characters, all of which can be written down again."""
        value = self._get(name)
        if not isinstance(value, str) or len(value) > longest:
            raise self.wrong(name)
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a pair of surrogates
            raise self.wrong(name) from None
        return value

    def is_null(self, name: str) -> bool:
        """Whether there is expressly nothing."""
        return self._get(name) is None

    def entry(self, name: str) -> Entry:
        """An object in it."""
        return Entry(self._get(name), self._place(name))

    def entries(self, name: str, *, at_most: int) -> list[Entry]:
        """At most `at_most` objects."""
        place = self._place(name)
        return [Entry(value, f"{place}[{index}]") for index, value in enumerate(self._list(name, at_most))]

    def wrong(self, name: str) -> Refusal:
        """The refusal of one of its entries."""
        return wrong(self._place(name))

    def _place(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _get(self, name: str) -> Any:
        if name not in self._values:
            raise self.wrong(name)
        return self._values[name]

    def _list(self, name: str, at_most: int) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list) or len(value) > at_most:
            raise self.wrong(name)
        return value

    def _whole(self, value: object, name: str, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name)
        return value


def parse_header(data: bytes) -> dict[str, Any]:
    """The JSON object that a header spells. Raises Refusal for anything else, NaN and bottomless nesting included."""

    def no_constant(_: str) -> NoReturn:
        raise ValueError

    try:
        value = json.loads(data.decode(), parse_constant=no_constant)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, an integer of thousands of digits
        raise Refusal("saved.header_broken") from None
    if not isinstance(value, dict):
        raise Refusal("saved.header_broken")
    return value
