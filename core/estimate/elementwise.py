"""Arithmetic that takes one number or a whole numpy array of them, without needing numpy itself.

A Python int stays exact at any size. An array is reckoned in float64, exact up to 2⁵³ and close above: int64 would
overflow without a word where long contexts meet large batches.
"""

from __future__ import annotations

from typing import Any, TypeAlias

# An int, or a numpy array of numbers, taken element by element; a function's result is of the kind of its arguments.
Numbers: TypeAlias = Any


def exact(numbers: Numbers) -> Numbers:
    """The numbers, an integer array as float64."""
    kind = getattr(getattr(numbers, "dtype", None), "kind", "")
    return numbers.astype(float) if kind in ("i", "u") else numbers


def smaller(a: Numbers, b: Numbers) -> Numbers:
    """The smaller of the two, element by element."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return min(a, b)
    return a - (a > b) * (a - b)


def larger(a: Numbers, b: Numbers) -> Numbers:
    """The larger of the two, element by element."""
    return -smaller(-a, -b)


def whole(value: Numbers) -> Numbers:
    """An expectation as a whole number of bytes; arrays are left as they are."""
    return round(value) if isinstance(value, int | float) else value
