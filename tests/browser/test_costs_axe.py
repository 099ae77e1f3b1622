"""Accessibility of the KV cache page: axe-core in both themes, languages and widths; everything by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.browser.contrast import weak_texts
from tests.browser.costs import DIALS, choose, dial, dialled, drawn, open_costs
from tests.browser.test_axe import serious, still
from tests.browser.visitor import Visitor

WIDTHS = (1440, 390)
NOTHING: dict[int, list[str]] = {width: [] for width in WIDTHS}
MOST_TABS = 160
FOCUSED = """() => {
  const { activeElement: here } = document;
  const box = here.getBoundingClientRect();
  const style = getComputedStyle(here);
  const data = here.dataset ?? {};
  return {
    name: data.dial ?? data.exact ?? data.figure ?? data.tool ?? '',
    kind: ['dial', 'exact', 'figure', 'tool'].find((kind) => kind in data) ?? '',
    isMarked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1,
    isSeen: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
    isEnd: here === document.body,
  };
}"""


def test_axe_finds_nothing_serious(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", accelerator="h100-sxm")
    for _ in visitor.in_each_look():
        assert serious_by_width(drawn(visitor), lambda: weak_texts(visitor.page)) == NOTHING


def test_axe_finds_nothing_serious_where_dials_are_off_and_a_figure_is_open(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", model="gemma-2-9b")
    still(visitor)
    found = serious(visitor.page)
    visitor.page.locator(".tbt-cards [data-figure=kv_bytes]").click()
    visitor.page.wait_for_selector("[data-testid=stDialog] .tbt-opened-result")
    still(visitor.at_rest())
    assert [*found, *serious(visitor.page)] == []


def test_everything_is_reached_and_used_by_keyboard(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", accelerator="h100-sxm")
    page, seen = visitor.page, []
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        here = page.evaluate(FOCUSED)
        if here["isEnd"]:
            break
        assert here["isSeen"], here
        assert here["isMarked"] or not here["kind"], here
        seen.append((here["kind"], here["name"]))
    reached = [name for kind, name in seen if kind == "dial"]
    assert reached == list(DIALS) and [name for kind, name in seen if kind == "exact"] == list(DIALS)
    assert len([1 for kind, _ in seen if kind == "figure"]) >= 5
    assert {name for kind, name in seen if kind == "tool"} == {"log", "png", "svg", "csv"}
    page.locator(".tbt-cards [data-figure=kv_bytes]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-testid=stDialog] .tbt-opened-result")
    page.keyboard.press("Escape")
    page.get_by_test_id("stDialog").wait_for(state="hidden")
    dial(visitor.at_rest().page, "batch").focus()
    page.keyboard.press("ArrowUp")
    visitor.address_says(batch="2").at_rest()
    assert dialled(visitor)["batch"] == 2
    assert page.evaluate("document.activeElement.dataset.dial") == "batch"
    choose(visitor, "cost_accelerator", "L4", accelerator="l4")


def serious_by_width(visitor: Visitor, more: Callable[[], list[str]] = list) -> dict[int, list[str]]:
    """What axe finds at each width, what `more` finds, and whether the page is wider than the screen."""
    found: dict[int, list[str]] = {}
    for width in WIDTHS:
        visitor.page.set_viewport_size({"width": width, "height": 900})
        still(visitor.at_rest())
        found[width] = [*serious(visitor.page), *more()]
        if visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found[width].append("the page is wider than the screen")
    return found
