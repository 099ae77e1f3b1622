"""Accessibility by axe-core, in the states a visitor meets: nothing serious or critical, in any theme and language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.visitor import LOOKS, Visitor

COUNTS = {"serious", "critical"}


def home(visitor: Visitor) -> None:
    visitor.open("/?lang=en").page.wait_for_selector(".tbt-facts")


def before_the_run(visitor: Visitor) -> None:
    visitor.open_stage(model="tiny", lang="en")


def after_two_steps(visitor: Visitor, language: str = "en") -> None:
    visitor.open_stage(model="tiny", lang=language).press("prefill", 1).press("decode", 2).press("decode", 3)


def with_a_figure_open(visitor: Visitor, language: str) -> None:
    after_two_steps(visitor, language)
    visitor.page.locator(".tbt-table tbody tr:last-child .tbt-open[data-figure=flops_exact]").click()
    visitor.page.wait_for_selector("[data-testid=stDialog] .tbt-opened-result")
    visitor.at_rest()


def with_the_conversation_open(visitor: Visitor, language: str) -> None:
    visitor.open_stage(model="smollm2", lang=language).press("prefill", 1).press("decode", 2)
    visitor.click("next_turn").page.wait_for_function("document.querySelector('.st-key-prompt textarea')?.value === ''")
    visitor.at_rest().page.locator(".st-key-conversation button").click()
    visitor.page.wait_for_selector("[data-testid=stPopoverBody] .tbt-told")
    visitor.at_rest()


@pytest.mark.parametrize("state", [home, before_the_run, after_two_steps], ids=lambda state: state.__name__)
def test_axe_finds_nothing_serious(visit: Any, state: Callable[[Visitor], None]) -> None:
    visitor = visit()
    state(visitor)
    for _ in visitor.in_each_look():
        still(visitor)
        assert serious(visitor.page) == []


@LOOKS
@pytest.mark.parametrize("state", [with_a_figure_open, with_the_conversation_open], ids=lambda state: state.__name__)
def test_axe_finds_nothing_serious_in_what_opens(
    visit: Any, state: Callable[[Visitor, str], None], language: str, dark: bool
) -> None:
    visitor = visit(locale="zh-CN" if language == "zh" else "en-US", dark=dark)
    state(visitor, language)
    still(visitor)
    assert serious(visitor.page) == []


def serious(page: Page) -> list[str]:
    """What axe finds on the page, each a sentence."""
    found = Axe().run(page).response["violations"]
    return [sentence(violation) for violation in found if violation["impact"] in COUNTS]


def still(visitor: Visitor) -> None:
    """Waits until what fades in has done so: half-transparent text has no contrast yet."""
    visitor.page.wait_for_function("document.getAnimations().every((motion) => motion.playState !== 'running')")


def sentence(violation: dict[str, Any]) -> str:
    """A violation as a reader wants it: rule, how bad, what it asks, and which elements."""
    elements = "; ".join(f"{node['target']} {node['html'][:160]}" for node in violation["nodes"][:4])
    return f"{violation['id']} ({violation['impact']}): {violation['help']}: {len(violation['nodes'])} × {elements}"
