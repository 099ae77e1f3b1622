"""Measured values as text: as many digits as they are known to, in one unit down a column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pages.shared.numbers import MINUS

DIGITS = 4
MOST_DECIMALS = 6
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def significant(value: float, digits: int = 3) -> str:
    """So many significant figures, never with an exponent: 1,230, 12.3, 0.0123."""
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded))) if rounded else 0
    return f"{rounded:,.{min(max(0, decimals), 12)}f}".replace("-", MINUS)


def duration(seconds: float, digits: int = DIGITS) -> str:
    """Seconds in the unit that suits them: 12.34 ms, 456.7 ns."""
    rounded = abs(float(f"{seconds:.{digits - 1}e}"))  # 999.96 would be written as 1,000 of its unit
    size, unit = next((pair for pair in _SECONDS if rounded >= pair[0]), _SECONDS[-1])
    return f"{significant(seconds / size, digits)} {unit}"


def rate(bytes_per_s: float) -> str:
    """A bandwidth: 12.3 GB/s."""
    return f"{significant(bytes_per_s / 1e9)} GB/s"


def share(value: float) -> str:
    """Of one, with its sign where it is below 0: 41.2%, −3.0%."""
    return f"{value:.1%}".replace("-", MINUS)


def signed_share(value: float) -> str:
    """An error with its sign: +12.0%, −3.0%, 0.0%."""
    text = f"{value:+.1%}"
    return text[1:] if text in ("+0.0%", "-0.0%") else text.replace("-", MINUS)


def column(values: Iterable[float], digits: int = DIGITS) -> Callable[[float], str]:
    """Writes values of one column with as many decimals as its smallest needs for `digits` figures."""
    least = min((abs(value) for value in values if value), default=1.0)
    decimals = min(max(0, digits - 1 - math.floor(math.log10(least))), MOST_DECIMALS)

    def write(value: float) -> str:
        text = f"{value:,.{decimals}f}"
        is_zero = not any(digit in text for digit in "123456789")
        return text.removeprefix("-") if is_zero else text.replace("-", MINUS)

    return write
