"""A server of our own on a free loopback port, and a Chromium that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from pages.shared.bundle import bundle
from tests.browser.server import Server, serving
from tests.browser.tabs import Tabs
from tests.browser.visitor import CHROMIUM_FLAGS, Visitor, executable

OpenTab = Callable[..., Visitor]
pytest.register_assert_rewrite("tests.browser.truth")  # its assertions say what differs, like a test's own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives a browser."""
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app that most tests share. Its log may hold no traceback at the end (C01)."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=executable(), args=CHROMIUM_FLAGS)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def module(server: Server, chromium: Browser) -> Iterator[Callable[..., Any]]:
    """Runs a function body with one of the stage's modules: `module("runs.js", "return m.recordOf(given)", given)`."""
    page = chromium.new_page()
    page.goto(f"{server.address}/api/ready")  # any address of the same server

    def call(name: str, body: str, given: Any = None) -> Any:
        return page.evaluate(
            f"async (given) => {{ const m = await import('/{bundle().path}/stage/{name}'); {body} }}", given
        )

    yield call
    page.close()


@pytest.fixture(scope="session")
def tabs(server: Server, chromium: Browser) -> Tabs:
    return Tabs(chromium, server.address)


@pytest.fixture
def visit(server: Server, tabs: Tabs) -> Iterator[OpenTab]:
    """Opens tabs: `visit(locale="zh-CN", width=390, dark=True)`; `visit(beside=other)` in the window of another.

    `visit(fresh=True)` opens one that nobody had before. At the end none of them may have had a problem: an error on
    the console or in a script, a request to elsewhere.
    """
    visitors: list[Visitor] = []
    lent: list[tuple[Page, str]] = []
    own: list[Page] = []

    def tab(
        locale: str = "en-US",
        width: int = 1440,
        height: int = 900,
        *,
        dark: bool = False,
        still: bool = True,
        fresh: bool = False,
        beside: Visitor | None = None,
    ) -> Visitor:
        look: dict[str, Any] = {
            "viewport": {"width": width, "height": height},
            "color_scheme": "dark" if dark else "light",
            "reduced_motion": "reduce" if still else "no-preference",  # still: every step is shown whole, at once
        }
        if beside:
            page = tabs.beside(beside.page, **look)
        elif fresh:
            page = tabs.fresh(locale, **look)
            own.append(page)
        else:
            page = tabs.lend(locale, **look)
            lent.append((page, locale))
        visitors.append(Visitor(page, server.address))
        return visitors[-1]

    yield tab
    problems = [problem for visitor in visitors for problem in visitor.leave()]
    for page in own:
        page.context.close()
    for page, locale in lent:
        tabs.take_back(page, locale)
    assert not problems
