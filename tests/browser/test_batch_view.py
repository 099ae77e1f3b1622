"""The batch, live: the line and the view on page 1, with an engine that the test makes up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.engine.status import Measuring
from core.words import LANGUAGES
from tests.browser.batch import LINE, VIEW, Fake
from tests.browser.contrast import weak_texts
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.statuses import alone, beside_home, forty, queued, seven

MEASURING = Measuring(name="context", n_done=2, n_points=20, n_waiting=3)
ALONE = {"en": "Only you are here · you decode alone (B = 1)", "zh": "现在只有你一个人 · 你在独自解码（B = 1）"}
BESIDE_HOME = {
    "en": "Only you are here · the home page's run · 2 decode together now (B = 2)",
    "zh": "现在只有你一个人 · 另有首页的现场运行 · 此刻 2 个运行一起解码（B = 2）",
}
SEVEN = {
    "en": "7 people share this model · 5 decode together now (B = 5) · 229 tokens/s together, 46 each",
    "zh": "7 人共用这个模型 · 此刻 5 个运行一起解码（B = 5） · 合计每秒 229 个 token，各得 46 个",
}
WAITS = {
    "en": "Your prefill waits for memory: place 3 in the queue.",
    "zh": "你的预填充在等内存：排在第 3 位。",
}
MEASURED = {"en": "point 3 of 20; steps wait for at most a second", "zh": "第 3 个点，共 20 个"}
TAKEAWAY = {
    "en": "At B = 5 a step takes 1.5 times as long as at B = 1 and yields 3.3 times the tokens per second.",
    "zh": "B = 5 时，一步用时是 B = 1 时的 1.5 倍，每秒得到的 token 是 3.3 倍。",
}
ONLY_ONE = {"en": "Only B = 1 has been measured so far.", "zh": "目前只测到 B = 1。"}
TITLES = {
    "en": ["time of a step (ms)", "all runs together (tokens/s)", "B, runs in one step"],
    "zh": ["一步用时（ms）", "全体合计（token/s）", "B，一步里的运行数"],
}
OPEN_S, CLOSED_S = 1.4, 4.7  # the least between two questions to the server: 1.5 s and 5 s, each less a twentieth
TURN = """(state) => {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
  return [window.asked.length, performance.now() / 1000];
}"""


def test_the_line_says_what_is_going_on(visit: Any) -> None:
    fake = Fake(visit()).open().says(ALONE["en"])
    box = fake.page.locator(".tbt-batch").bounding_box()
    assert box and box["y"] + box["height"] < 400  # far above the fold of 1440 × 900
    fake.opened()
    for language in fake.visitor.in_each_look():
        fake.shows(seven, SEVEN[language])
        assert "32.3 MiB" in fake.line and "2.00 GiB" in fake.line
        fake.shows(lambda tag: replace(seven(tag), measuring=MEASURING), MEASURED[language])
        spoken = fake.page.locator(".tbt-batch [role=status]")
        spoken.filter(has_text=MEASURED[language]).wait_for(state="attached")  # not sooner than some seconds after
        fake.shows(seven, SEVEN[language])
        assert spoken.inner_text() == ""  # what changes from second to second is not read aloud
        fake.shows(queued, WAITS[language])


@pytest.mark.parametrize("language", LANGUAGES)
def test_rows_pictures_and_curves_show_the_same_engine(visit: Any, language: str) -> None:
    fake = Fake(visit()).open(f"lang={language}").opened().says(ALONE[language])
    sentence_, page = fake.page.locator(".tbt-batch-sentence"), fake.page
    assert ONLY_ONE[language] in sentence_.inner_text()
    fake.shows(seven, SEVEN[language])
    rows = page.locator(".tbt-runs tbody tr")
    assert rows.count() == 7 and page.locator(".tbt-runs-own").count() == 1
    own = rows.first.inner_text().split()
    assert {"en": "you", "zh": "你"}[language] in own and {"118", "2.59", "46"} <= set(own)
    assert {"en": "prefilling 128 of 512", "zh": "预填充 128 / 512"}[language] in page.locator(VIEW).inner_text()
    assert page.locator(".tbt-batch-step g").count() == 7
    assert page.locator(".tbt-batch-step g.tbt-batch-pale").count() == 2  # one is prefilled, one rests
    texts = page.locator(".tbt-curves text").all_text_contents()
    assert set(TITLES[language]) <= set(texts)
    assert page.locator("[data-curve=rate] .tbt-curve-point").count() == 5
    assert page.locator("[data-curve] .tbt-curve-ring").count() == 2
    assert sentence_.inner_text() == TAKEAWAY[language]
    dots = page.locator(".tbt-batch-dots i").evaluate_all("dots => dots.map((dot) => dot.className)")
    assert sum("tbt-dot-decoding" in dot for dot in dots) == 5 and sum("tbt-dot-own" in dot for dot in dots) == 1


def test_the_home_pages_run_is_nobody(visit: Any) -> None:
    """It shares the pass, which is said, and is not counted among the people."""
    fake = Fake(visit(), beside_home).open().opened()
    for language in fake.visitor.in_each_look():
        fake.says(BESIDE_HOME[language])
        rows = fake.page.locator(".tbt-runs tbody tr")
        assert rows.count() == 2 and fake.page.locator(".tbt-runs-own").count() == 1
        assert {"en": "on the home page", "zh": "首页现场"}[language] in rows.last.inner_text()


def test_units_and_language_change_at_once_and_the_view_stays_open(visit: Any) -> None:
    fake = Fake(visit(), seven).open().opened().says(SEVEN["en"])
    page = fake.page
    page.evaluate("document.querySelector('.tbt-batch').marked = true")
    page.locator(".st-key-units").get_by_text("GB", exact=True).click()
    fake.says("33.9 MB of 2.15 GB")
    assert "269.0 MB" in page.locator(".tbt-batch-step figcaption").inner_text()
    fake.visitor.switch("中文", "预填充")
    fake.says(SEVEN["zh"])
    assert page.locator(".tbt-batch details").get_attribute("open") is not None
    assert page.locator(".tbt-batch-sentence").inner_text() == TAKEAWAY["zh"]
    fake.visitor.press("prefill", 1).press("decode", 2)
    assert page.evaluate("document.querySelector('.tbt-batch').marked")  # the very same element: nothing flashes
    assert page.locator(VIEW).is_visible()


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_moves_when_people_come_and_go(visit: Any, width: int) -> None:
    fake = Fake(visit(width=width)).open().opened()
    heights = set()
    for made, line in ((alone, "Only you"), (seven, "7 people"), (forty, "40 people")):
        fake.shows(made, line)
        heights.add(fake.page.evaluate("document.querySelector('.tbt-batch').offsetHeight"))
        assert fake.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert len(heights) == 1


def test_a_server_that_fails_leaves_a_calm_line_and_is_asked_more_seldom(visit: Any) -> None:
    fake = Fake(visit(), seven).open().opened().says(SEVEN["en"])
    fake.shows(None, "No news from the server at the moment")
    assert fake.page.locator(".tbt-runs tbody tr").count() == 7  # what was known stays
    assert fake.asks(2)[-1] > 2.5
    fake.shows(seven, SEVEN["en"])
    assert {problem.split(":")[0] for problem in fake.visitor.problems} == {"Failed to load resource"}
    fake.visitor.problems.clear()


def test_it_asks_while_it_is_seen_and_never_otherwise(visit: Any) -> None:
    fake = Fake(visit()).open().says(ALONE["en"])
    page, pause = fake.page, fake.page.wait_for_timeout
    assert min(fake.asks(2)) > CLOSED_S
    n_opened = len(fake.opened().asked)
    assert OPEN_S < min(fake.asks(n_opened + 3)[n_opened:]) < CLOSED_S
    n_hidden, _ = page.evaluate(TURN, "hidden")
    pause(2500)
    assert len(fake.asked) == n_hidden
    _, turned = page.evaluate(TURN, "visible")
    once_more = fake.asks(n_hidden + 2)[n_hidden]
    assert fake.asked[n_hidden] - turned < OPEN_S < once_more  # at once, and then as before
    page.locator("[data-testid=stTopNavLink]").nth(2).click()
    page.wait_for_selector(LINE, state="detached")
    n_left = len(fake.asked)
    pause(2500)
    assert len(fake.asked) == n_left
    page.route("**/api/batch", lambda route: None)  # no answer from now on: what stands there is what was left
    page.locator("[data-testid=stTopNavLink]").nth(1).click()
    page.wait_for_selector(VIEW, state="visible")
    assert "Only you" in fake.line


def test_out_of_sight_it_does_not_ask(visit: Any) -> None:
    fake = Fake(visit(height=240)).open()
    fake.page.wait_for_timeout(1000)
    assert fake.n_answered == 0
    fake.page.locator(LINE).scroll_into_view_if_needed()
    fake.says(ALONE["en"])


def test_it_opens_by_keyboard_and_the_focus_stays(visit: Any) -> None:
    fake = Fake(visit(), seven).open().says(SEVEN["en"])
    summary = fake.page.locator(".tbt-batch summary")
    summary.focus()
    fake.page.keyboard.press("Enter")
    fake.page.wait_for_selector(VIEW, state="visible")
    fake.shows(alone, ALONE["en"])
    assert summary.evaluate("summary => summary === document.activeElement")
    fake.page.keyboard.press("Tab")
    assert fake.page.evaluate("document.activeElement.className") == "tbt-runs-box"


def test_axe_finds_nothing_serious(visit: Any) -> None:
    fake = Fake(visit(), seven).open().opened()
    for language in fake.visitor.in_each_look():
        fake.says(SEVEN[language])
        assert serious_by_width(fake.visitor, lambda: weak_texts(fake.page)) == NOTHING
