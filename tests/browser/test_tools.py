"""The tools below the stage as a visitor uses them, in both languages: predicted, measured, read; axe in any theme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.words import sentence
from pages.shared.tools.race import DEFAULT_NEW
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.browser.visitor import PATIENCE_MS, Visitor

PANEL = ".st-key-tools"
TAKEAWAY = f"{PANEL} .tbt-takeaway"


def begun(visit: Any, tool: str) -> Visitor:
    """A visitor with three steps of a run, who follows a link to a tool."""
    visitor: Visitor = visit().open_stage(model="tiny", lang="en", prompt="The sea is", max=20, tool=tool)
    return visitor.press("prefill", 1).press("decode", 2).press("decode", 3)


def press(visitor: Visitor, key: str) -> Visitor:
    visitor.page.locator(f".st-key-{key} button:visible").first.click()
    return visitor.at_rest()


def guess(visitor: Visitor) -> Visitor:
    """Takes the first answer of every prediction."""
    for group in visitor.page.locator(f"{PANEL} .stRadio").all():
        group.locator("label[data-baseweb=radio], [role=radiogroup] label").first.click()
        visitor.at_rest()
    return visitor


def cells(visitor: Visitor) -> list[list[str]]:
    """The tables of the tool, row by row."""
    found: list[list[str]] = visitor.page.locator(f"{PANEL} table tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return found


def measured(visitor: Visitor, tool: str) -> Visitor:
    """Presses the tool's button, and waits for its last sentence."""
    press(visitor, {"microscope": "microscope_measure"}.get(tool, f"{tool}_start"))
    visitor.page.wait_for_selector(TAKEAWAY, timeout=PATIENCE_MS)
    return visitor.at_rest()


def microscope(visitor: Visitor, language: str) -> None:
    rows = cells(visitor)
    ledger, gap = (
        next(row for row in rows if row and row[0] == sentence(f"microscope.{name}", language))
        for name in ("sum_ledger", "sum_gap")
    )
    assert "0" not in ledger[1:2] and [cell for cell in gap[1:] if cell] == ["0", "0", "0"]
    before = visitor.page.locator(f"{PANEL} li[aria-current]").inner_text()
    press(visitor, "microscope_next")
    visitor.page.wait_for_function(
        "([selector, before]) => document.querySelector(selector)?.innerText !== before",
        arg=[f"{PANEL} li[aria-current]", before],
    )
    assert visitor.page.locator(f"{PANEL} li[aria-current]").count() == 1


def race(visitor: Visitor, language: str) -> None:
    assert visitor.page.locator(f"{PANEL} .tbt-lane").count() == 2
    (positions,) = [row for row in cells(visitor) if row[0] == sentence("race.row_positions", language)]
    n_prompt, n_cached, n_recomputed = len(visitor.labels("prompt")), int(positions[1]), int(positions[2])
    n_steps = n_cached - n_prompt + 1  # an end token may come earlier than asked
    assert 1 < n_steps <= DEFAULT_NEW and n_recomputed == sum(n_prompt + step for step in range(n_steps))


def causality(visitor: Visitor, language: str) -> None:
    masked, unmasked = (
        next(row for row in cells(visitor) if row[0] == sentence(f"causality.row_{name}", language))
        for name in ("masked", "unmasked")
    )
    # But for rounding: some processors add up the products of seven rows and of thirteen in another order.
    assert float(masked[1]) < 1e-4 and float(masked[2]) < 1e-4 and masked[3] == "0"
    assert float(unmasked[1]) > 0.01 and float(unmasked[2]) < 1e-4 and unmasked[3] != "0"


def timeline(visitor: Visitor, language: str) -> None:
    assert visitor.page.locator(f"{PANEL} .tbt-svg").count() == 2


SHOWS: dict[str, Callable[[Visitor, str], None]] = {
    "microscope": microscope,
    "race": race,
    "causality": causality,
    "timeline": timeline,
}


@pytest.mark.parametrize("tool", SHOWS)
def test_a_tool_is_used_and_axe_finds_nothing_serious(visit: Any, tool: str) -> None:
    visitor = measured(guess(begun(visit, tool)), tool)
    for language in visitor.in_each_look():
        SHOWS[tool](visitor, language)
        assert serious_by_width(visitor) == NOTHING
    other = next(name for name in SHOWS if name != tool)
    visitor.page.locator(".st-key-tool button").nth(list(SHOWS).index(other)).click()
    visitor.address_says(tool=other)
