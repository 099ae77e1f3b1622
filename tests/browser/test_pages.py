"""What a person sees in Chromium: both pages, both languages, both themes, wide and narrow."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.browser.contrast import weak_texts
from tests.browser.server import Server

HOSTILE = "$5 and $6 a_b_c ~~x~~ ** <b id=evil>b</b> <img src=x onerror=\"document.title='evil'\"> # t `c` :red[r]\nend"


@pytest.mark.parametrize(("locale", "title"), [("zh-CN", "逐字"), ("en-US", "Token by Token")])
def test_home_speaks_the_browsers_language_and_leads_on(visit: Any, locale: str, title: str) -> None:
    visitor = visit(locale=locale).open("/")
    assert title in visitor.page.locator("h1").inner_text()
    assert visitor.page.evaluate("document.documentElement.lang") == ("zh-CN" if locale == "zh-CN" else "en")
    visitor.page.locator(".st-key-path a").first.click()
    visitor.page.wait_for_url("**/prefill_and_decode*")
    assert visitor.on_stage().can("prefill")


def test_prefill_two_decodes_back_and_reset(visit: Any) -> None:
    visitor = visit().open_stage()
    assert not visitor.can("decode") and visitor.steps == 0
    visitor.press("prefill", 1).press("decode", 2).press("decode", 3)
    shown, tokens = visitor.screen(), visitor.labels("produced")
    assert len(tokens) == len(shown["ledger"]) == 3
    assert "".join(tokens) in shown["text"]
    assert [chip["isNewest"] for chip in shown["chips"]].index(True) == len(shown["chips"]) - 1
    visitor.press("step_back", 2).press("decode", 3)
    assert visitor.labels("produced") == tokens
    visitor.press("reset", 0)
    assert not visitor.can("decode") and visitor.screen()["chips"] == []


def test_a_double_click_is_one_step(visit: Any) -> None:
    visitor = visit().open_stage(model="tiny").press("prefill", 1).double_click("decode").shows(2)
    visitor.press("decode", 3)  # a step that the second click had asked for would have come before this one


def test_a_chip_says_where_its_token_lies_and_who_predicted_it(visit: Any) -> None:
    visitor = visit().open_stage(model="tiny", lang="en", prompt="白日依山尽").press("prefill", 1).press("decode", 2)
    chips = visitor.screen()["chips"]
    newest, prompt_end = chips[-1], chips[-3]
    assert f"id {newest['id']}, position {newest['position']}" in visitor.screen()["detail"]
    assert f"position {newest['position'] - 1}" in visitor.screen()["detail"]
    visitor.page.locator(f".tbt-strip [data-position='{prompt_end['position']}']").click()
    visitor.page.wait_for_selector(f".tbt-strip [data-position='{prompt_end['position']}'][aria-current=true]")
    detail = visitor.screen()["detail"]
    assert f"“{prompt_end['label']}”: id {prompt_end['id']}" in detail and "given" in detail and "first new" in detail
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.wait_for_selector(
        f".tbt-strip [data-position='{prompt_end['position'] + 1}'][aria-current=true]:focus"
    )


def test_a_hostile_prompt_is_shown_literally_and_creates_no_element(visit: Any) -> None:
    """C10 as well: dollars, underscores, tildes, backticks and tags are text, in chips, detail, text and ledger."""
    visitor = visit().open_stage(model="smollm2").write_prompt(HOSTILE).press("prefill", 1)
    page = visitor.page
    assert page.locator("#evil").count() == 0 and page.locator(".tbt-stage img, .tbt-stage script").count() == 0
    assert page.locator(".tbt-stage .katex, .tbt-stage code").count() == 0 and "evil" not in page.title()
    assert HOSTILE in "".join(visitor.labels("prompt")).replace("⏎", "\n").replace("␣", " ")
    visitor.press("decode", 2)


def test_the_switch_changes_the_language_and_keeps_the_run(visit: Any) -> None:
    visitor = visit().open_stage().press("prefill", 1).press("decode", 2)
    chips = visitor.screen()["chips"]
    visitor.switch("中文", "预填充")
    visitor.page.wait_for_function("document.querySelector('[data-act=decode]')?.innerText.includes('解码')")
    visitor.address_says(lang="zh").at_rest()
    assert visitor.page.evaluate("document.documentElement.lang") == "zh-CN"
    assert visitor.screen()["chips"] == chips
    visitor.press("decode", 3)


def test_a_link_carries_the_language(visit: Any) -> None:
    visitor = visit(locale="en-US").open_stage(lang="zh")
    assert "预填充" in visitor.page.locator("h1").inner_text()


def test_two_tabs_have_two_runs(visit: Any) -> None:
    one, other = visit().open_stage(), visit().open_stage()
    one.press("prefill", 1).press("decode", 2)
    other.press("prefill", 1)
    one.press("decode", 3)
    assert other.steps == 1 and len(other.screen()["ledger"]) == 1


@pytest.mark.parametrize("path", ["/", "/prefill_and_decode"])
@pytest.mark.parametrize(("locale", "width", "height", "dark"), [("zh-CN", 390, 844, True), ("en-US", 375, 667, False)])
def test_a_narrow_screen_never_scrolls_sideways(
    visit: Any, path: str, locale: str, width: int, height: int, dark: bool
) -> None:
    """C12 as well (375 × 667): the buttons stand above the picture they drive, and all of them on the screen."""
    visitor = visit(locale=locale, width=width, height=height, dark=dark)
    if path == "/":
        visitor.open(path)
    else:
        visitor.open_stage().press("prefill", 1).press("decode", 2)
    # One look at everything together: the page may still be moving when a browser is slow.
    visitor.page.wait_for_function(FITS, arg=width)


@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
def test_no_fact_is_hidden_on_a_narrow_screen(visit: Any, locale: str) -> None:
    """The table of facts does not grow, so it is shown whole: no row lies outside its box."""
    page = visit(locale=locale, width=390, height=844).open("/").page
    page.wait_for_function(
        """() => {
          const box = document.querySelector('.tbt-scroll:has(.tbt-facts)')?.getBoundingClientRect();
          const rows = [...document.querySelectorAll('.tbt-facts tr')].map((row) => row.getBoundingClientRect());
          return box && rows.length >= 7 && rows.every((row) => box.top - 1 <= row.top && row.bottom <= box.bottom + 1);
        }"""
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_themes(visit: Any, dark: bool) -> None:
    """C22 for text; what the canvas draws uses the same inks. A cell's K and V differ by their place as well."""
    visitor = visit(dark=dark).open_stage(model="tiny", lang="en").press("prefill", 1).press("decode", 2)
    assert weak_texts(visitor.page) == []
    home = visit(dark=dark).open("/")
    assert weak_texts(home.page) == []


def test_routes_of_the_running_server(server: Server) -> None:
    with urllib.request.urlopen(f"{server.address}/api/ready") as answer:
        assert answer.status == 200 and json.load(answer)["serving"]
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{server.address}/api/no-such-thing")
    assert error.value.code == 404 and json.load(error.value)["error"]


FITS = """(width) => {
  const boxes = '.stApp, [data-testid=stMain], .tbt-card, [data-testid=stVerticalBlock]';
  const isOverflowing = [...document.querySelectorAll(boxes)].some((box) => box.scrollWidth > box.clientWidth + 1);
  const buttons = [...document.querySelectorAll('.tbt-stage [data-act]:not([hidden]), .st-key-path a')]
    .map((button) => button.getBoundingClientRect());
  const picture = document.querySelector('.tbt-view canvas')?.getBoundingClientRect();
  const isInside = (box) => box.width > 0 && box.left >= 0 && box.right <= width;
  const isAbove = (box) => !picture || box.bottom <= picture.top;
  return !isOverflowing && document.documentElement.scrollWidth === width && buttons.length > 0
    && buttons.every((box) => isInside(box) && isAbove(box));
}"""
