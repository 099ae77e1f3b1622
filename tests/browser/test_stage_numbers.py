"""Numbers are written alike wherever they are written: by the pages in Python, and by the stage in JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pages.shared import numbers

# Up to a thousand tera, which both languages hold exactly: round values, their neighbours, and where rounding carries.
POWERS = [base**power for base, most in ((10, 15), (2, 49)) for power in range(most + 1)]
CARRYING = [
    9_995,
    10_235,
    99_950,
    999_499,
    999_500,
    999_949,
    1_023_999,
    1_048_524,
    1_048_575,
    1_082_880,
    12_345_678_901,
]
WHOLE = sorted({0, 999, *CARRYING, *(power + off for power in POWERS for off in (-1, 0, 1, 5))})
SHARES = [
    0.0,
    1e-9,
    0.0004,
    0.00099,
    0.001,
    0.00149,
    0.0625,
    0.09949,
    0.0995,
    0.1,
    0.125,
    0.345,
    0.4149,
    0.625,
    0.995,
    1.0,
]
SECONDS = [
    0.0,
    1e-7,
    3.1e-4,
    9.994e-3,
    9.995e-3,
    0.0142,
    0.0625,
    0.09994,
    0.09995,
    0.1,
    0.1235,
    0.9999,
    1.0,
    1.125,
    75.5,
]
EXACT = [7, 1000, 9_768_448, 15_740_000_000]
PAIRS = [(off(exact), exact) for exact in EXACT for off in (
    lambda n: n, lambda n: n + 1, lambda n: n - 1, lambda n: n * 1079 // 1000, lambda n: 3 * n, lambda n: n - n // 999,
)]  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours", "values"),
    [
        ("count", numbers.count, [(sign * value,) for value in WHOLE for sign in (1, -1)]),
        ("scaled", numbers.scaled, [(value,) for value in WHOLE]),
        ("scaledBytes", numbers.scaled_bytes, [(value, units) for value in WHOLE for units in ("binary", "decimal")]),
        ("milliseconds", numbers.milliseconds, [(value,) for value in SECONDS]),
        ("percent", numbers.percent, [(value,) for value in SHARES]),
        ("gapPercent", numbers.gap_percent, PAIRS),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_browser_writes_numbers_as_the_pages_do(
    module: Callable[..., Any], theirs: str, ours: Callable[..., str], values: list[tuple[Any, ...]]
) -> None:
    written = module("numbers.js", f"return given.map((values) => m.{theirs}(...values))", values)
    both = {value: (text, ours(*value)) for value, text in zip(values, written, strict=True)}
    assert {value: texts for value, texts in both.items() if texts[0] != texts[1]} == {}
