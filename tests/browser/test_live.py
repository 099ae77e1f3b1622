"""The home page's live run as visitors see it: it comes word by word, is the same for all, and ends with the last."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest

from core.words import LANGUAGES, sentence
from pages.shared.home.live import TAG
from pages.shared.prompts import default_prompt
from tests.browser.contrast import weak_texts
from tests.browser.test_axe import serious, still
from tests.browser.visitor import PATIENCE_MS, Visitor

CARD = ".tbt-live"
# Pixels from the top of the run's room to what stands below it, read in one moment; 0 while the page is drawn.
ROOM = """() => {
  const [room, below] = ['live_room', 'runs_here'].map((name) => document.querySelector(`.st-key-${name}`));
  return room && below ? Math.round(below.getBoundingClientRect().top - room.getBoundingClientRect().top) : 0;
}"""


def steps_on_screen(visitor: Visitor) -> int:
    return int(visitor.page.locator(CARD).get_attribute("data-steps") or 0)


def shows_at_least(visitor: Visitor, steps: int) -> Visitor:
    visitor.page.wait_for_function(
        f"steps => Number(document.querySelector('{CARD}')?.dataset.steps) >= steps", arg=steps, timeout=PATIENCE_MS
    )
    return visitor


def begun(visitor: Visitor, language: str = "en", steps: int = 6) -> Visitor:
    """On the home page, with a run that has something to show; begun by hand where motion is not wanted."""
    visitor.open(f"/?lang={language}").page.wait_for_selector(CARD)
    watch = visitor.page.get_by_role("button", name=sentence("live.watch", language), exact=True)
    if watch.count():
        watch.click()
    return shows_at_least(visitor, steps)


def seats(visitor: Visitor) -> list[str]:
    with urllib.request.urlopen(f"{visitor.address}/api/batch", timeout=10) as answer:
        return [seat["tag"] for seat in json.load(answer)["seats"]]


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_comes_word_by_word_and_can_be_paused(visit: Any, language: str) -> None:
    visitor = begun(visit(still=False), language, 3)
    page, card = visitor.page, visitor.page.locator(CARD)
    assert (
        default_prompt("smollm2", language) in card.inner_text()
        or default_prompt("tiny", language) in card.inner_text()
    )
    shows_at_least(visitor, steps_on_screen(visitor) + 1)
    shows_at_least(visitor, 6)
    for name in ("prefill", "decode"):
        value = card.locator(f".tbt-live-{name} b").inner_text()
        assert value.endswith(" ms") and float(value.removesuffix(" ms")) > 0
    assert card.locator(".tbt-takeaway").inner_text()
    assert "iB" in card.locator(".tbt-live-cache b").inner_text()
    page.get_by_role("button", name=sentence("live.pause", language), exact=True).click()
    stands = page.locator(".tbt-live-text").inner_text()
    page.wait_for_timeout(1000)
    assert page.locator(".tbt-live-text").inner_text() == stands
    page.get_by_role("button", name=sentence("live.watch", language), exact=True).click()
    page.wait_for_function(
        "stands => document.querySelector('.tbt-live-text').innerText !== stands", arg=stands, timeout=PATIENCE_MS
    )


def test_all_visitors_see_the_same_run_and_it_ends_with_the_last(visit: Any) -> None:
    one = begun(visit(still=False), steps=2)
    other = begun(visit(still=False), steps=1)
    one.page.get_by_text(sentence("live.watching", "en", count=2)).wait_for(timeout=PATIENCE_MS)
    words = [each.page.locator(f"{CARD} .tbt-live-question + span").inner_text() for each in (one, other)]
    assert words[1].startswith(words[0]) or words[0].startswith(words[1])
    assert TAG in seats(one)
    for each in (one, other):
        each.page.get_by_role("link", name=sentence("pages.title_planner", "en")).first.click()
        each.page.wait_for_selector(CARD, state="detached")
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while TAG in seats(one):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_who_asked_for_less_motion_begins_it_when_they_like(visit: Any) -> None:
    visitor = visit()
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    visitor.open("/?lang=en").page.wait_for_selector(CARD)
    assert sentence("live.still", "en") in visitor.page.locator(CARD).inner_text()
    visitor.page.wait_for_timeout(500)
    assert steps_on_screen(visitor) == 0 and not [url for url in asked if "/api/live" in url]
    begun(visitor, steps=1)


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 390)])
def test_nothing_below_it_moves_while_it_is_written(visit: Any, language: str, width: int) -> None:
    """From when the page stands there, the run not yet drawn, until its takeaway does."""
    visitor = visit(width=width).open(f"/?lang={language}")
    visitor.page.wait_for_function(f"() => ({ROOM})() > 400", timeout=PATIENCE_MS)
    before = visitor.page.evaluate(ROOM)
    begun(visitor, language)
    assert visitor.page.locator(f"{CARD} .tbt-takeaway").is_visible()
    assert visitor.page.evaluate(ROOM) == before
    assert visitor.page.locator(CARD).evaluate("card => card.scrollWidth <= card.clientWidth")


def test_the_language_changes_and_the_run_stays(visit: Any) -> None:
    visitor = begun(visit(still=False), "en", 2)
    visitor.page.get_by_role("button", name=sentence("live.pause", "en"), exact=True).click()
    seen = steps_on_screen(visitor)
    visitor.switch("中文", "逐字")
    visitor.page.get_by_text(sentence("live.prefill", "zh"), exact=True).wait_for(timeout=PATIENCE_MS)
    assert (
        steps_on_screen(visitor) == seen and visitor.page.get_by_text(sentence("live.watch", "zh"), exact=True).count()
    )


def test_axe_finds_nothing_serious(visit: Any) -> None:
    visitor = begun(visit())
    visitor.page.get_by_role("button", name=sentence("live.pause", "en"), exact=True).click()
    for language in visitor.in_each_look():
        visitor.page.get_by_text(sentence("live.prefill", language), exact=True).wait_for(timeout=PATIENCE_MS)
        still(visitor)
        assert serious(visitor.page) == [] and weak_texts(visitor.page) == []
