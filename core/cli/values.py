"""Values as the command line takes them: argparse types that say what they want, and texts as one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def one_line(text: str) -> str:
    """The text with every run of blanks, line ends included, as one space: what was typed may hold anything."""
    return " ".join(text.split())


def whole_number(least: int, most: int = 2**64 - 1) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` to `most`; 2⁶⁴ − 1 is as far as any goes."""
    wanted = f"from {least} on" if most == 2**64 - 1 else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number {wanted}, not {text[:40]!r}")
        return int(text)

    return parse


def whole_numbers(least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """An argparse type: different whole numbers from `least` to `most`, separated by commas."""
    one = whole_number(least, most)

    def parse(text: str) -> tuple[int, ...]:
        values = tuple(one(part.strip()) for part in text.split(","))
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"must name each number once, not {text[:40]!r}")
        return values

    return parse


def number(least: float, most: float = math.inf) -> Callable[[str], float]:
    """An argparse type: a finite number between `least` and `most`."""
    wanted = f"from {least} on" if most == math.inf else f"between {least} and {most}"

    def parse(text: str) -> float:
        try:
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"must be a number {wanted}, not {text[:40]!r}")
        return value

    return parse
