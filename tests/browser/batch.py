"""The batch's view as a visitor sees it, with an engine that a test makes up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from playwright.sync_api import Page, Route

from core.engine.status import Status
from pages.shared.batch import status_json
from tests.browser.visitor import PAGE_1, PATIENCE_MS, Visitor
from tests.statuses import alone

LINE, VIEW = ".tbt-batch-line", ".tbt-batch-body"
# When the page asks from now on, in seconds of its own clock: however late the test hears of it, and answers.
CLOCK = """{
  const ask = window.fetch;
  window.asked = [];
  window.fetch = (address, ...more) => {
    if (String(address).endsWith('/api/batch')) window.asked.push(performance.now() / 1000);
    return ask(address, ...more);
  };
}"""
Made = Callable[[str], Status]


@dataclass
class Fake:
    """Answers in the server's place. `made` gives the status for the visitor's own tag; None: the server fails."""

    visitor: Visitor
    made: Made | None = alone
    tag: str = ""
    n_answered: int = 0

    def __post_init__(self) -> None:
        self.page.route("**/api/batch", self._answer)

    @property
    def page(self) -> Page:
        return self.visitor.page

    def open(self, query: str = "lang=en") -> Fake:
        """Opens page 1, and learns what the visitor's own tag is."""
        self.page.goto(f"{self.visitor.address}{PAGE_1}?model=tiny&{query}")
        self.visitor.on_stage()
        self.page.wait_for_selector(".tbt-batch[data-tag]")
        self.page.evaluate(CLOCK)
        self.tag = self.page.locator(".tbt-batch").get_attribute("data-tag") or ""
        return self

    def opened(self) -> Fake:
        """Opens the view."""
        self.page.locator(".tbt-batch summary").click()
        self.page.wait_for_selector(VIEW, state="visible")
        return self

    def shows(self, made: Made | None, line: str) -> Fake:
        """Answers with another status from now on; waits until the line says so."""
        self.made = made
        return self.says(line)

    def says(self, line: str) -> Fake:
        self.page.wait_for_function(
            f"(line) => document.querySelector('{LINE}')?.textContent.includes(line)", arg=line, timeout=PATIENCE_MS
        )
        return self

    @property
    def asked(self) -> list[float]:
        """When the page has asked since it was open."""
        times: list[float] = self.page.evaluate("window.asked")
        return times

    def asks(self, times: int) -> list[float]:
        """Waits until the page has asked so often since it was open; the seconds from each time to the next."""
        self.page.wait_for_function("times => window.asked.length >= times", arg=times, timeout=PATIENCE_MS)
        return [later - earlier for earlier, later in pairwise(self.asked)]

    @property
    def line(self) -> str:
        return self.page.locator(LINE).inner_text()

    def _answer(self, route: Route) -> None:
        self.n_answered += 1
        if self.made is None:
            route.fulfill(status=503, json={"error": "not now"})
        else:
            route.fulfill(json=status_json(self.made(self.tag)))
