"""What a visitor waits for: the first look at a page, and a decode step from the click to the painted column.

A server of its own and a Chromium on the same machine. The time a step takes in the model, as the page shows it, is
taken off: what remains is the way from the click to the server, back, and onto the screen.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.browser.server import serving
from tests.browser.visitor import CHROMIUM_FLAGS, Visitor
from tools import chromium

MOST_SECONDS, MOST_BYTES, MOST_OVERHEAD_S = 2.5, 3.5e6, 0.06
LOADS, CLICKS, CLICKS_OF_A_LONG_RUN = 5, 32, 12
SETTLES_MS = 2000
PAGES = {
    "home": ("/?lang=en", "Boolean(document.querySelector('.st-key-path a') && document.querySelector('.tbt-facts'))"),
    "page 1": (
        "/prefill_and_decode?lang=en&model=smollm2",
        "document.querySelector('[data-act=prefill]')?.getAttribute('aria-disabled') === 'false'",
    ),
}
SHORT_PROMPT, LONG_PROMPT = "Why is the sky blue?", "one two three four five " * 52

# Every click's seconds from the event to the frame of the screen behind the new painting, without the model's own.
STOPWATCH = """() => {
  const [stage, button] = ['.tbt-stage', '[data-act=decode]'].map((selector) => document.querySelector(selector));
  let clicked = 0;
  window.steps = [];
  button.addEventListener('click', (event) => { clicked = event.timeStamp; }, true);
  new MutationObserver(() => requestAnimationFrame(() => {
    if (!clicked) return;
    const [size, unit] = stage.querySelector('.tbt-table tbody tr:last-child').lastChild.textContent.split(' ');
    const inModel = Number(size) * (unit === 'ms' ? 1e-3 : 1);
    window.steps.push((performance.now() - clicked) / 1000 - inModel);
    clicked = 0;
  })).observe(stage, { attributes: true, attributeFilter: ['data-painted'] });
}"""


@dataclass
class Received:
    """Bytes that reached a tab, as Chromium's network log has them: over HTTP, and over the websocket."""

    http: int = 0
    websocket: int = 0

    def listen(self, log: CDPSession) -> Received:
        def loaded(event: dict[str, float]) -> None:
            self.http += int(event["encodedDataLength"])

        def framed(event: dict[str, dict[str, str]]) -> None:
            data = event["response"]["payloadData"]
            is_text = event["response"]["opcode"] == 1
            self.websocket += len(data.encode() if is_text else base64.b64decode(data))

        log.on("Network.loadingFinished", loaded)
        log.on("Network.webSocketFrameReceived", framed)
        log.send("Network.enable")
        return self


@dataclass
class Steps:
    """Decode steps by hand: seconds besides the model's own, and bytes received, one each a click."""

    n_tokens: int = 0
    overheads: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


@contextmanager
def app_and_browser() -> Iterator[tuple[str, Browser]]:
    """The address of a server of its own, and a Chromium. SystemExit with a sentence where there is none to be had."""
    executable = chromium.find_or_install(Path(sys.executable))
    if not executable:
        raise SystemExit(f"pages and stage are not measured: {chromium.HOW_TO_GET_ONE}")
    with TemporaryDirectory() as folder, serving(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield server.address, browser
        browser.close()


def report_pages() -> None:
    """Measures and prints all figures, the goals beside them."""
    with app_and_browser() as (address, browser):
        print(f"\npages, warm server, empty browser cache, medians of {LOADS}")
        for name, (path, is_usable) in PAGES.items():
            seconds, size = first_look(browser, address + path, is_usable)
            goal = f"(goals ≤ {MOST_SECONDS} s, ≤ {MOST_BYTES / 1e6} MB)"
            print(f"  {name:<8} usable after {seconds:5.2f} s, {size / 1e6:5.2f} MB  {goal}")
        short = decode_steps(browser, address, SHORT_PROMPT, CLICKS)
        long = decode_steps(browser, address, LONG_PROMPT, CLICKS_OF_A_LONG_RUN)
    print(
        f"  a decode click adds {1e3 * median(short.overheads):.0f} ms to the model's time at n = {short.n_tokens}, "
        f"{1e3 * median(long.overheads):.0f} ms at n = {long.n_tokens} (goal ≤ {1e3 * MOST_OVERHEAD_S:.0f} ms)"
    )
    print(
        f"  a step brings {median(short.sizes):,.0f} bytes at n = {short.n_tokens}, {median(long.sizes):,.0f} "
        f"at n = {long.n_tokens} (goal: no more)"
    )


def first_look(browser: Browser, url: str, is_usable: str) -> tuple[float, float]:
    """Seconds until the page can be used, and bytes over HTTP until a moment later; each in a fresh browser.

    Home's live run never comes to an end: there is no waiting for silence.
    """
    seconds, sizes = [], []
    for _ in range(LOADS):
        with fresh_tab(browser) as (page, received):
            page.goto(url, wait_until="commit")
            seconds.append(page.wait_for_function(f"() => {is_usable} && performance.now()").json_value() / 1000)
            page.wait_for_timeout(SETTLES_MS)
            sizes.append(received.http)
    return median(seconds), median(sizes)


def decode_steps(browser: Browser, address: str, prompt: str, clicks: int) -> Steps:
    """Presses *Decode* again and again; the first two steps are not counted."""
    steps = Steps()
    with fresh_tab(browser) as (page, received):
        visitor = Visitor(page, address).open_stage(model="smollm2", lang="en", max=200).write_prompt(prompt)
        visitor.press("prefill", 1).press("decode", 2).press("decode", 3)
        page.evaluate(STOPWATCH)
        for number in range(4, 4 + clicks):
            before = received.websocket
            visitor.press("decode", number).at_rest()
            steps.sizes.append(received.websocket - before)
        steps.overheads = page.evaluate("window.steps")
        steps.n_tokens = int(visitor.screen()["ledger"][-1][4].replace(",", ""))
    return steps


@contextmanager
def fresh_tab(browser: Browser) -> Iterator[tuple[Page, Received]]:
    """A tab with an empty cache, and what it receives."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    page = context.new_page()
    try:
        yield page, Received().listen(context.new_cdp_session(page))
    finally:
        context.close()
