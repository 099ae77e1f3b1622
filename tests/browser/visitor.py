"""One browser tab: what its visitor does on the pages, and what stands on their screen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Request

PAGE_1 = "/prefill_and_decode"
AT_REST = "[data-testid='stApp'][data-test-connection-state='CONNECTED'][data-test-script-state='notRunning']"
# Chromium keeps two pages of its own behind each window, for an address bar that is not there without a screen: more
# than a third of what opening a page takes of the processor. The rest of the list is playwright's, which this replaces.
DO_WITHOUT = (
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,"
    "AimEnabled,AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsFirstBalancedModeAutoEnable,"
    "HttpsUpgrades,LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,PreconnectToSearch,"
    "ThirdPartyStoragePartitioning"
)
CHROMIUM_FLAGS = [
    f"--disable-features={DO_WITHOUT}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DOUBLE_CLICK_SECONDS = 0.26  # the stage takes two clicks on one button within a quarter of a second for one
PATIENCE_MS = 60_000
LOOKS = pytest.mark.parametrize(("language", "dark"), [("en", False), ("zh", True)], ids=["en, light", "zh, dark"])
"""Each language and each theme once: words do not depend on colours, nor colours on words."""

# The page's stage itself.
STAGE = """async () => {
  const files = performance.getEntriesByType('resource').map((entry) => entry.name);
  return (await import(files.find((name) => name.endsWith('/stage/main.js')))).all()[0];
}"""
# All that the stage shows, read in one moment.
SCREEN = """() => {
  const stage = document.querySelector('.tbt-stage');
  const shown = (selector) => [...stage.querySelectorAll(selector)].filter((box) => box.getClientRects().length);
  const text = (selector) => shown(selector)[0]?.textContent ?? '';
  return {
    steps: Number(stage.dataset.steps),
    chips: shown('.tbt-strip [data-position]').map((chip) => ({
      position: Number(chip.dataset.position),
      id: Number(chip.querySelector('small').textContent),
      label: chip.querySelector('bdi').textContent,
      kind: ['tbt-prompt', 'tbt-produced'].find((name) => chip.classList.contains(name)),
      isNewest: chip.classList.contains('tbt-new'),
    })),
    text: text('.tbt-text'),
    detail: text('.tbt-detail'),
    ledger: shown('.tbt-table tbody tr').map((row) => [...row.cells].map((cell) => cell.textContent)),
    picture: shown('.tbt-view canvas')[0]?.getAttribute('aria-label') ?? '',
    notice: text('.tbt-bar-all .tbt-notice'),
  };
}"""


def executable() -> str:
    """The Chromium that `make test` found."""
    return os.environ["TBT_CHROMIUM"]


@dataclass
class Visitor:
    """A tab, and what went wrong in it."""

    page: Page
    address: str
    problems: list[str] = field(default_factory=list)
    _last_click: float = 0.0

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", self._broke)
        self.page.on("request", self._asked)

    def leave(self) -> list[str]:
        """Listens no more. Returns what went wrong."""
        self.page.remove_listener("console", self._heard)
        self.page.remove_listener("pageerror", self._broke)
        self.page.remove_listener("request", self._asked)
        return self.problems

    def open(self, path: str = "/") -> Visitor:
        self.page.goto(self.address + path)
        return self.at_rest()

    def open_stage(self, **settings: Any) -> Visitor:
        """Opens page 1 with these settings in its address, and waits for the stage."""
        self.page.goto(f"{self.address}{PAGE_1}?{urlencode(settings)}")
        return self.on_stage()

    def on_stage(self) -> Visitor:
        """Waits until page 1 stands there with its stage."""
        self.page.wait_for_selector(".tbt-stage[data-version]", timeout=PATIENCE_MS)
        return self.at_rest()

    def at_rest(self) -> Visitor:
        """Waits until the page has answered; what was just done needs a moment until the page knows of it."""
        self.page.wait_for_timeout(120)
        self.page.wait_for_selector(AT_REST, timeout=PATIENCE_MS)
        return self

    def button(self, action: str) -> Locator:
        return self.page.locator(f".tbt-stage [data-act={action}]")

    def can(self, action: str) -> bool:
        return self.button(action).get_attribute("aria-disabled") == "false"

    def comes_to_a_stop(self) -> Visitor:
        """Waits until there is no further token to decode: what can be done is said a moment after the last one."""
        self.page.wait_for_selector(".tbt-stage [data-act=decode][aria-disabled=true]", timeout=PATIENCE_MS)
        return self.at_rest()

    def click(self, action: str) -> Visitor:
        """Clicks a button of the stage as soon as it can be pressed, and never so that it looks like a double click."""
        self.page.wait_for_selector(f".tbt-stage [data-act={action}][aria-disabled=false]", timeout=PATIENCE_MS)
        self.rest_after_a_click().button(action).click()
        self._last_click = time.monotonic()
        return self

    def rest_after_a_click(self) -> Visitor:
        """Waits until another click could not be taken for the second half of a double click."""
        self.page.wait_for_timeout(max(0.0, 1000 * (self._last_click + DOUBLE_CLICK_SECONDS - time.monotonic())))
        return self

    def double_click(self, action: str) -> Visitor:
        self.button(action).dblclick()
        self._last_click = time.monotonic()
        return self

    def press(self, action: str, steps: int) -> Visitor:
        """Clicks a button and waits until so many steps are on the screen."""
        return self.click(action).shows(steps)

    def shows(self, steps: int) -> Visitor:
        """Waits until so many steps are on the screen, the picture included, and the page is done."""
        painted = f"[data-painted='{steps}']" if steps else ""
        self.page.wait_for_selector(f".tbt-stage[data-steps='{steps}']{painted}", timeout=PATIENCE_MS)
        self.page.wait_for_selector(AT_REST, timeout=PATIENCE_MS)
        return self

    def shows_more_than(self, steps: int) -> Visitor:
        """Waits until more than so many steps are on the screen."""
        self.page.wait_for_function(
            "steps => Number(document.querySelector('.tbt-stage')?.dataset.steps) > steps",
            arg=steps,
            timeout=PATIENCE_MS,
        )
        return self

    @property
    def steps(self) -> int:
        """How many steps are on the screen."""
        return int(self.page.locator(".tbt-stage").get_attribute("data-steps") or 0)

    def settled(self) -> int:
        """How many steps are on the screen once none is under way: for a page that was just paused."""
        self.page.wait_for_selector(".tbt-stage:not([data-waiting])", timeout=PATIENCE_MS)
        self.page.wait_for_selector(AT_REST, timeout=PATIENCE_MS)
        return self.steps

    def screen(self) -> dict[str, Any]:
        """What the stage shows, all read in one moment."""
        shown: dict[str, Any] = self.page.evaluate(SCREEN)
        return shown

    def labels(self, kind: str) -> list[str]:
        """The tokens of a kind: "prompt" or "produced" (the newest one included)."""
        return [chip["label"] for chip in self.screen()["chips"] if chip["kind"] == f"tbt-{kind}"]

    def write_prompt(self, prompt: str) -> Visitor:
        """Types a prompt and leaves the box."""
        self.page.locator(".st-key-prompt textarea").fill(prompt)
        self.page.locator(".st-key-prompt textarea").blur()
        return self.at_rest()

    def set_number(self, key: str, value: str, **address: str) -> Visitor:
        """Fills a number field and leaves it; waits until the page's address holds what is given."""
        field_ = self.page.locator(f".st-key-{key} input")
        field_.fill(value)
        field_.press("Enter")
        return self.address_says(**address)

    def address_says(self, **words: str) -> Visitor:
        """Waits until the address holds these settings: the page has taken them in."""
        self.page.wait_for_function(
            """words => Object.entries(words).every(([name, word]) =>
              new URLSearchParams(location.search).get(name) === word)""",
            arg=dict(words),
            timeout=PATIENCE_MS,
        )
        return self

    def switch(self, label: str, heading: str) -> Visitor:
        """Chooses a language by its name, and waits until the heading speaks it."""
        self.page.locator(".st-key-language_switch").get_by_text(label, exact=True).click()
        self.page.wait_for_function(
            "heading => document.querySelector('h1')?.innerText.includes(heading)", arg=heading, timeout=PATIENCE_MS
        )
        return self

    def in_each_look(self) -> Iterator[str]:
        """The page as it stands, opened in English and light; then the same in Chinese and dark, changed in place.

        As LOOKS, for what costs much to bring about. Yields the language.
        """
        yield "en"
        self.page.emulate_media(color_scheme="dark")
        self.page.set_viewport_size({"width": 1440, "height": 900})
        self.page.locator(".st-key-language_switch").get_by_text("中文", exact=True).click()
        self.page.wait_for_function("document.documentElement.lang.startsWith('zh')", timeout=PATIENCE_MS)
        self.at_rest()
        yield "zh"

    def _heard(self, message: ConsoleMessage) -> None:
        # Streamlit looks for its own endpoints below the page's path first; on a deep link these are not there.
        if message.type == "error" and "/_stcore/" not in message.location.get("url", ""):
            self.problems.append(message.text)

    def _broke(self, error: Error) -> None:
        self.problems.append(str(error))

    def _asked(self, request: Request) -> None:
        own = (self.address, self.address.replace("http", "ws"), "data:", "blob:")
        if not request.url.startswith(own):
            self.problems.append(f"asked {request.url}")


def asked_from_now(page: Page) -> list[str]:
    """What the page asks for from now on, but for what the batch's line asks every few seconds of its own accord."""
    asked: list[str] = []
    page.on("request", lambda request: None if request.url.endswith("/api/batch") else asked.append(request.url))
    return asked


def duplicate(original: Visitor, tab: Visitor) -> Visitor:
    """Makes a new tab what *duplicate tab* makes it: the same address, and a copy of what the tab keeps for itself."""
    kept = json.dumps(original.page.evaluate("Object.entries(sessionStorage)"))
    copying = f"for (const [name, value] of {kept}) sessionStorage.setItem(name, value)"
    tab.page.add_init_script(f"if (!sessionStorage.length) {copying}")
    tab.page.goto(original.page.url)
    return tab
