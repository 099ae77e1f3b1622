"""Page 5 in a browser: a sweep fills its chart and is found again, the report comes home, nothing serious for axe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import WebSocketRoute

from core.words import sentence
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.browser.visitor import PATIENCE_MS, Visitor

PLAN = "model=tiny&contexts=32,64,128,256&batches=1,2&repeats=3"
HEARD_MS = 1500  # the server has heard of something, and has run the page
LATENCY = ".st-key-lab_latency .tbt-chart[data-drawn]"


def opened(visitor: Visitor, language: str) -> Visitor:
    visitor.page.goto(f"{visitor.address}/lab?lang={language}&{PLAN}")
    visitor.page.wait_for_selector(".st-key-lab_plan_part [data-testid=stBaseButton-primary]", timeout=PATIENCE_MS)
    return visitor.at_rest()


def swept(visitor: Visitor) -> Visitor:
    """Runs the plan to its end."""
    visitor.page.locator(".st-key-lab_plan_part [data-testid=stBaseButton-primary]").click()
    visitor.page.wait_for_selector(".st-key-lab_report", timeout=2 * PATIENCE_MS)
    visitor.page.wait_for_selector(".st-key-lab_running", state="detached", timeout=2 * PATIENCE_MS)
    return visitor.at_rest()


def handed_in(visitor: Visitor, report: Path) -> str:
    """Presses the report's button once."""
    with visitor.page.expect_download(timeout=PATIENCE_MS) as coming:
        visitor.page.locator(".st-key-lab_report button").click()
    coming.value.save_as(report)
    return report.read_text(encoding="utf-8")


def test_a_sweep_runs_is_drawn_and_found_again(visit: Any, tmp_path: Path) -> None:
    visitor = swept(opened(visit(), "en"))
    visitor.page.wait_for_selector(LATENCY)
    points = visitor.page.locator(f"{LATENCY} .point").count()
    for _ in visitor.in_each_look():
        assert points >= 8 and visitor.page.locator(f"{LATENCY} .main-svg").count()
        assert serious_by_width(visitor) == NOTHING
    visitor.page.locator("[class*=st-key-lab_conclusion] textarea").fill("It grew by less than n did.")
    text = handed_in(visitor, tmp_path / "report.html")  # the button is pressed before the field was left
    assert sentence("report.title", "zh") in text and "It grew by less than n did." in text
    visitor.page.reload()
    visitor.page.wait_for_selector(LATENCY, timeout=PATIENCE_MS)
    assert visitor.page.locator(f"{LATENCY} .point").count() == points


def test_the_report_is_there_before_the_page_has_heard_of_what_was_typed(visit: Any, tmp_path: Path) -> None:
    visitor = visit(fresh=True)
    answers = Answers()
    visitor.page.route_web_socket("**/_stcore/stream", answers.pass_on)
    swept(opened(visitor, "en"))
    answers.are_held = True
    visitor.page.locator("[class*=st-key-lab_conclusion] textarea").fill("It grew by less than n did.")
    visitor.page.locator("[class*=st-key-lab_conclusion] textarea").blur()
    visitor.page.wait_for_timeout(HEARD_MS)
    visitor.page.locator(".st-key-lab_report button").click()
    visitor.page.wait_for_timeout(HEARD_MS)
    with visitor.page.expect_download(timeout=PATIENCE_MS) as coming:
        answers.let_go()
    assert "It grew by less than n did." in Path(coming.value.path()).read_text(encoding="utf-8")


class Answers:
    """What the server says to a tab, which may be held back for a while."""

    def __init__(self) -> None:
        self.are_held = False
        self._held: list[str | bytes] = []
        self._tab: WebSocketRoute | None = None

    def pass_on(self, tab: WebSocketRoute) -> None:
        """Called for the connection of a tab."""
        self._tab = tab
        tab.connect_to_server().on_message(self._take)

    def let_go(self) -> None:
        """The tab hears of everything, in order."""
        self.are_held = False
        while self._held:
            self._say(self._held.pop(0))

    def _take(self, message: str | bytes) -> None:
        if self.are_held:
            self._held.append(message)
        else:
            self._say(message)

    def _say(self, message: str | bytes) -> None:
        assert self._tab is not None
        self._tab.send(message)
