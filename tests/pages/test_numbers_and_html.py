"""Numbers for readers, and HTML that values cannot break."""

from __future__ import annotations

import pytest

from pages.shared.html import Html, fill, join
from pages.shared.numbers import count, gap_percent, milliseconds, percent, scaled


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (999_600, "1.00 M"), (9_770_000_000, "9.77 G"), (272e6, "272 M"),
     (15_740_000_000, "15.7 G"), (1.5e18, "1500 P")],
)  # fmt: skip
def test_three_figures_and_a_prefix(value: float, shown: str) -> None:
    assert scaled(value) == shown


def test_other_numbers() -> None:
    assert count(1_082_880) == "1,082,880" and count(-3) == "−3"
    assert [milliseconds(s) for s in (0.00031, 0.0142, 0.0964, 0.1, 2.414)] == [
        "0.31 ms", "14.2 ms", "96.4 ms", "100.0 ms", "2.41 s",
    ]  # fmt: skip
    assert [percent(p) for p in (0.41, 0.0625, 0.0001, 1.0)] == ["41%", "6.2%", "< 0.1%", "100%"]
    assert [gap_percent(v, 1000) for v in (1079, 990, 1000)] == ["+7.9%", "−1.0%", "0%"]
    assert gap_percent(100_001, 100_000) == "+0.001%"


def test_values_are_escaped_and_html_is_not() -> None:
    inner = fill("<i>{x}</i>", x="<b>&\"'{y}")
    assert inner == "<i>&lt;b&gt;&amp;&quot;&#x27;{y}</i>"
    assert fill("<p>{inner}</p>", inner=inner) == f"<p>{inner}</p>"
    assert isinstance(join([inner, Html("<br>")]), Html)
