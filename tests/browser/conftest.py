"""A server of our own on a free loopback port, and a Chromium that looks at it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AT_REST = "[data-testid='stApp'][data-test-connection-state='CONNECTED'][data-test-script-state='notRunning']"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives a browser."""
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app, started as `make run` starts it and ended by its own process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        f"--server.port={port}",
        "--server.address=127.0.0.1",
    ]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()[-4000:]


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/api/ready", timeout=5) as answer:
                if json.load(answer)["ready"]:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise AssertionError(f"the server was not ready in time: {log.read_text()}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["TBT_CHROMIUM"], args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """One browser tab, and what went wrong in it."""

    page: Page
    address: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> Visitor:
        self.page.goto(self.address + path)
        return self.at_rest()

    def at_rest(self) -> Visitor:
        """Waits until the page has answered; a click needs a moment until the page knows of it."""
        self.page.wait_for_timeout(120)
        self.page.wait_for_selector(AT_REST, timeout=60_000)
        return self

    def press(self, action: str, rows: int) -> Visitor:
        """Presses a button and waits until the ledger has so many rows."""
        self.page.wait_for_timeout(260)  # two clicks in a quarter of a second are a double click
        self.page.locator(f".st-key-{action} button").click()
        self.page.wait_for_function(
            f"document.querySelectorAll('.tbt-table tbody tr').length === {rows}", timeout=60_000
        )
        return self.at_rest()

    def chips(self, kind: str) -> list[str]:
        return self.page.locator(f".tbt-chip.tbt-{kind}").all_text_contents()

    def write_prompt(self, prompt: str) -> Visitor:
        self.page.locator(".st-key-prompt textarea").fill(prompt)
        self.page.locator(".st-key-prompt textarea").blur()
        return self.at_rest()

    def _heard(self, message: ConsoleMessage) -> None:
        # Streamlit looks for its own endpoints below the page's path first; on a deep link these are not there.
        if message.type == "error" and "/_stcore/" not in message.location.get("url", ""):
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        own = (self.address, self.address.replace("http", "ws"), "data:", "blob:")
        if not request.url.startswith(own):
            self.problems.append(f"asked {request.url}")


@pytest.fixture
def visit(server: str, chromium: Browser) -> Iterator[Any]:
    """Opens tabs: `visit(locale="zh-CN", width=390, dark=True)`. At the end none of them may have had a problem."""
    visitors: list[Visitor] = []

    def tab(locale: str = "en-US", width: int = 1440, height: int = 900, dark: bool = False) -> Visitor:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, locale=locale, color_scheme="dark" if dark else "light"
        )
        visitor = Visitor(context.new_page(), server)
        visitor.page.on("console", visitor._heard)
        visitor.page.on("pageerror", lambda error: visitor.problems.append(str(error)))
        visitor.page.on("request", visitor._asked)
        visitors.append(visitor)
        return visitor

    yield tab
    problems = [problem for visitor in visitors for problem in visitor.problems]
    for visitor in visitors:
        visitor.page.context.close()
    assert not problems
