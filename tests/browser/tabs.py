"""Tabs for the tests: one that has been used is lent again, cleaned, because its scripts are compiled already.

That is half of what opening a page takes of the processor. A tab remembers some things for good: what runs before every
document, and how far its history goes back. Tests that need these as they are at the beginning, or leave something of
the kind, ask for a fresh one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NoReturn

from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.visitor import PATIENCE_MS

MOST_USES = 25
"""Then a tab makes room for a new one: what little each document leaves behind stays little."""
FORGET = "() => { localStorage.clear(); sessionStorage.clear(); window.name = ''; }"


class Tabs:
    """The tabs of one browser, for one address."""

    def __init__(self, chromium: Browser, address: str) -> None:
        self._chromium, self._address = chromium, address
        self._resting: defaultdict[str, list[Page]] = defaultdict(list)
        self._uses: defaultdict[Page, int] = defaultdict(int)

    def fresh(self, locale: str, **look: Any) -> Page:
        """A tab in a window of its own, with a cache of its own."""
        context = self._chromium.new_context(locale=locale, **look)
        context.set_default_timeout(PATIENCE_MS)
        return context.new_page()

    def lend(self, locale: str, viewport: Any, color_scheme: Any, reduced_motion: Any) -> Page:
        """A tab that looks so and knows nothing of earlier visitors."""
        if not self._resting[locale]:
            page = self.fresh(locale)
            page.add_init_script = _refuse  # type: ignore[method-assign]
        else:
            page = self._resting[locale].pop()
        self._uses[page] += 1
        page.goto(f"{self._address}/api/ready")  # an answer without scripts: nothing writes anything behind FORGET
        page.evaluate(FORGET)
        page.context.clear_cookies()
        _look(page, viewport, color_scheme, reduced_motion)
        return page

    def beside(self, page: Page, viewport: Any, color_scheme: Any, reduced_motion: Any) -> Page:
        """A new tab in the window of another."""
        other = page.context.new_page()
        _look(other, viewport, color_scheme, reduced_motion)
        return other

    def take_back(self, page: Page, locale: str) -> None:
        """The visitor has left. Tabs that were opened beside theirs close."""
        for other in page.context.pages:
            if other != page:
                other.close()
        if self._uses[page] == MOST_USES:
            self._uses.pop(page)
            page.context.close()
            return
        _as_it_came(page.context, page)
        page.goto("about:blank")
        self._resting[locale].append(page)


def _look(page: Page, viewport: Any, color_scheme: Any, reduced_motion: Any) -> None:
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion, media="null")


def _as_it_came(context: BrowserContext, page: Page) -> None:
    page.unroute_all(behavior="ignoreErrors")
    context.unroute_all(behavior="ignoreErrors")
    context.set_offline(False)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("This tab will be lent to others: ask for a fresh one, visit(fresh=True).")
