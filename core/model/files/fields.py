"""Typed reading of the settings in a model file: each value is checked once, and refused by its name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.refusal import Refusal

# Far above any published model, and low enough that no loop or table over them can run away.
MOST_LAYERS = 1 << 10
MOST_WIDTH = 1 << 20
MOST_TOKENS = 1 << 22
MOST_POSITIONS = 1 << 27

_LONGEST_SHOWN = 48


def shown(value: object) -> str:
    """A value out of a file as it may stand in a sentence: short, on one line, printable."""
    if isinstance(value, list | tuple | dict):
        return "{…}" if isinstance(value, dict) else "[…]"
    text = "".join(letter if letter.isprintable() else "?" for letter in str(value)[: _LONGEST_SHOWN + 1])
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def spelled(value: object) -> str:
    """The same, as JSON writes it: a text in quotes, so that "64" and 64 are told apart; true, not True."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{shown(value)}"' if isinstance(value, str) else shown(value)


class Fields:
    """The settings of one file by name; a null counts as absent, as Hugging Face writes it for "not used"."""

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}
        self.file = file

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> Any:
        """The value as it stands, or None."""
        return self.values.get(name)

    def whole(self, name: str, *, at_most: int, at_least: int = 1, default: int | None = None) -> int:
        """A whole number in [at_least, at_most]; `default` where it is absent.

        Raises:
            Refusal: it is absent and has no default, is no whole number, or lies outside.
        """
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refusal("model.field_not_whole", field=name, value=spelled(value), file=self.file)
        if not at_least <= value <= at_most:
            self._outside(name, value, at_least, at_most)
        return value

    def number(
        self, name: str, *, at_most: float, at_least: float, default: float | None = None, open_below: bool = False
    ) -> float:
        """A finite number in [at_least, at_most], or above at_least with `open_below`; else as `whole`."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Refusal("model.field_not_a_number", field=name, value=spelled(value), file=self.file)
        if not at_least <= value <= at_most or not math.isfinite(value) or (open_below and value == at_least):
            self._outside(name, value, at_least, at_most)
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false, nothing that only resembles it."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise Refusal("model.field_not_a_flag", field=name, value=spelled(value), file=self.file)
        return value

    def text(self, name: str) -> str | None:
        """A string, or None where it is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise Refusal("model.field_not_text", field=name, value=spelled(value), file=self.file)
        return value

    def refuse(self, name: str) -> None:
        """Refuse the model for a setting that this transformer does not compute."""
        raise Refusal("model.option_unsupported", field=name, value=spelled(self.values.get(name)), file=self.file)

    def _value(self, name: str, default: float | None) -> Any:
        value = self.values.get(name, default)
        if value is None:
            raise Refusal("model.field_missing", field=name, file=self.file)
        return value

    def _outside(self, name: str, value: object, at_least: float, at_most: float) -> None:
        raise Refusal(
            "model.field_outside", field=name, value=shown(value), least=at_least, most=at_most, file=self.file
        )
