"""The batch's view as a visitor sees it, with an engine that a test makes up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from playwright.sync_api import Page, Route

from core.engine.status import Status
from pages.shared.batch import status_json
from tests.browser.visitor import PAGE_1, Visitor
from tests.statuses import alone

LINE, VIEW = ".tbt-batch-line", ".tbt-batch-body"
Made = Callable[[str], Status]


@dataclass
class Fake:
    """Answers in the server's place. `made` gives the status for the visitor's own tag; None: the server fails."""

    visitor: Visitor
    made: Made | None = alone
    tag: str = ""
    asked: list[float] = field(default_factory=list)

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
            f"(line) => document.querySelector('{LINE}')?.textContent.includes(line)", arg=line, timeout=15_000
        )
        return self

    @property
    def line(self) -> str:
        return self.page.locator(LINE).inner_text()

    def _answer(self, route: Route) -> None:
        self.asked.append(time.monotonic())
        if self.made is None:
            route.fulfill(status=503, json={"error": "not now"})
        else:
            route.fulfill(json=status_json(self.made(self.tag)))
