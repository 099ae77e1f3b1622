"""What a person sees in Chromium: both pages, both languages, both themes, wide and narrow."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

HOSTILE = "$5 and $6 a_b_c ~~x~~ <b id=evil>b</b> <img src=x onerror=\"document.title='evil'\"> # t `c` :red[r]\nend"


@pytest.mark.parametrize(("locale", "title"), [("zh-CN", "逐字"), ("en-US", "Token by Token")])
def test_home_speaks_the_browsers_language_and_leads_on(visit: Any, locale: str, title: str) -> None:
    visitor = visit(locale=locale).open("/")
    assert title in visitor.page.locator("h1").inner_text()
    assert visitor.page.evaluate("document.documentElement.lang") == ("zh-CN" if locale == "zh-CN" else "en")
    visitor.page.locator(".st-key-path a").click()
    visitor.page.wait_for_url("**/prefill_and_decode*")
    visitor.page.wait_for_selector(".st-key-prefill button")
    visitor.at_rest()


def test_prefill_two_decodes_back_and_reset(visit: Any) -> None:
    visitor = visit().open("/prefill_and_decode")
    assert visitor.page.locator(".st-key-decode button").is_disabled()
    visitor.press("prefill", rows=1).press("decode", rows=2).press("decode", rows=3)
    tokens = visitor.chips("produced") + visitor.chips("new")
    assert len(tokens) == 3
    assert "".join(tokens) in visitor.page.locator(".tbt-text").inner_text()
    visitor.press("step_back", rows=2).press("decode", rows=3)
    assert visitor.chips("produced") + visitor.chips("new") == tokens
    visitor.press("reset", rows=0)
    assert visitor.page.locator(".st-key-decode button").is_disabled()


def test_a_double_click_is_one_step(visit: Any) -> None:
    visitor = visit().open("/prefill_and_decode").press("prefill", rows=1)
    visitor.page.locator(".st-key-decode button").dblclick()
    visitor.at_rest().page.wait_for_timeout(800)
    assert visitor.at_rest().page.locator(".tbt-table tbody tr").count() == 2


def test_a_hostile_prompt_is_shown_literally_and_creates_no_element(visit: Any) -> None:
    visitor = visit().open("/prefill_and_decode").write_prompt(HOSTILE).press("prefill", rows=1)
    page = visitor.page
    assert page.locator("#evil").count() == 0 and page.locator(".tbt-results img").count() == 0
    assert page.locator(".tbt-results .katex").count() == 0 and "evil" not in page.title()
    shown = "".join(visitor.chips("prompt")).replace("⏎", "\n")
    assert HOSTILE in shown
    visitor.press("decode", rows=2)


def test_the_switch_changes_the_language_and_keeps_the_run(visit: Any) -> None:
    visitor = visit().open("/prefill_and_decode").press("prefill", rows=1).press("decode", rows=2)
    tokens = visitor.chips("prompt")
    visitor.page.get_by_text("中文", exact=True).click()
    visitor.page.wait_for_function("document.querySelector('h1').innerText.includes('预填充')")
    visitor.at_rest()
    assert "lang=zh" in visitor.page.url and visitor.page.evaluate("document.documentElement.lang") == "zh-CN"
    assert visitor.chips("prompt") == tokens
    visitor.press("decode", rows=3)


def test_a_link_carries_the_language(visit: Any) -> None:
    visitor = visit(locale="en-US").open("/prefill_and_decode?lang=zh")
    assert "预填充" in visitor.page.locator("h1").inner_text()


def test_two_tabs_have_two_runs(visit: Any) -> None:
    one, other = visit().open("/prefill_and_decode"), visit().open("/prefill_and_decode")
    one.press("prefill", rows=1).press("decode", rows=2)
    other.press("prefill", rows=1)
    one.press("decode", rows=3)
    assert other.page.locator(".tbt-table tbody tr").count() == 1


@pytest.mark.parametrize("path", ["/", "/prefill_and_decode"])
@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_never_scrolls_sideways(visit: Any, path: str, locale: str, dark: bool) -> None:
    visitor = visit(locale=locale, width=390, height=844, dark=dark).open(path)
    if path != "/":
        visitor.press("prefill", rows=1).press("decode", rows=2)
    overflow = visitor.page.evaluate(OVERFLOWING)
    assert overflow == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390
    button = visitor.page.locator(".st-key-prefill button, .st-key-path a").first.bounding_box()
    assert button["x"] >= 0 and button["x"] + button["width"] <= 390


@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
def test_no_fact_is_hidden_on_a_narrow_screen(visit: Any, locale: str) -> None:
    """The table of facts does not grow, so it is shown whole: no row lies outside its box."""
    page = visit(locale=locale, width=390, height=844).open("/").page
    # One look at box and rows together: the page may still be moving when a browser is slow.
    page.wait_for_function(
        """() => {
          const box = document.querySelector('.tbt-scroll:has(.tbt-facts)').getBoundingClientRect();
          const rows = [...document.querySelectorAll('.tbt-facts tr')].map((row) => row.getBoundingClientRect());
          return rows.length >= 7 && rows.every((row) => box.top - 1 <= row.top && row.bottom <= box.bottom + 1);
        }"""
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_themes(visit: Any, dark: bool) -> None:
    visitor = visit(dark=dark).open("/prefill_and_decode").press("prefill", rows=1).press("decode", rows=2)
    weak = visitor.page.evaluate(CONTRAST)
    assert weak == []


def test_routes_of_the_running_server(server: str) -> None:
    with urllib.request.urlopen(f"{server}/api/ready") as answer:
        assert answer.status == 200 and json.load(answer)["serving"]
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{server}/api/no-such-thing")
    assert error.value.code == 404 and json.load(error.value)["error"]


OVERFLOWING = """() => [...document.querySelectorAll(
    '.stApp, [data-testid=stMain], .tbt-card, [data-testid=stVerticalBlock]'
  )].filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.className)"""

# Every piece of our own text against the first opaque background behind it, by WCAG's formula.
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] > 250) return color;
    }
    return [255, 255, 255, 255];
  };
  const weak = [];
  const ours = '[class*=tbt-] *, [class*=tbt-], .st-key-actions button:not(:disabled) p';
  for (const e of document.querySelectorAll(ours)) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length) continue;
    const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) weak.push(`${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
