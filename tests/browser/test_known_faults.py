"""What went wrong for others, one test a fault; the letters are those of the list the project keeps.

Elsewhere: C01 (a clean log) at the end of the fixture `server`; C05 (a pause) and C06 (a reload in play) in
test_controls_in_play.py; C09 (one load, however many ask) in tests/pages/test_shelf_and_routes.py; C10 (markup), C12
(narrow screens) and C22 (contrast of texts) in test_pages.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Playwright

from tests.browser.contrast import LEAST, weak_inks
from tests.browser.protocol import session
from tests.browser.server import Server, serving
from tests.browser.visitor import CHROMIUM_FLAGS, PATIENCE_MS, Visitor, executable

PROMPT = "白日依山尽"
TINY = {"model": "tiny", "lang": "en", "prompt": PROMPT}
MANY = 30


def test_c02_settings_outlive_the_page_that_draws_them(visit: Any) -> None:
    visitor = visit().open_stage(**TINY).set_number("max_new", "77", max="77")
    visitor.page.locator(".st-key-use_cache label").first.click()
    visitor.address_says(cache="0").at_rest().page.get_by_test_id("stTopNavLink").first.click()
    visitor.page.wait_for_selector(".st-key-path a")
    visitor.at_rest().page.get_by_test_id("stTopNavLink").nth(1).click()
    visitor.on_stage()
    assert visitor.page.locator(".st-key-max_new input").input_value() == "77"
    assert not visitor.page.locator(".st-key-use_cache input").is_checked()
    assert visitor.page.locator(".st-key-prompt textarea").input_value() == PROMPT


def test_c03_one_click_and_everything_on_the_screen_shows_its_step(visit: Any) -> None:
    visitor = visit().open_stage(**TINY).press("prefill", 1)
    for steps in (2, 3):
        visitor.press("decode", steps)
        shown = visitor.screen()
        n = len(shown["chips"]) - 1
        assert shown["steps"] == len(shown["ledger"]) == steps
        assert shown["ledger"][-1][4] == str(n) and f"{n} positions in use" in shown["picture"]
        assert shown["chips"][-1]["label"] == shown["ledger"][-1][1] and f"position {n}." in shown["detail"]
        assert f"{n} positions used" in visitor.page.locator(".tbt-memory").inner_text()


def test_c04_a_limit_below_what_was_produced_is_kept_and_harms_nothing(visit: Any) -> None:
    visitor = visit().open_stage(**TINY, max=9).press("prefill", 1)
    for steps in range(2, 6):
        visitor.press("decode", steps)
    visitor.set_number("max_new", "3", max="3").at_rest()
    assert visitor.page.locator(".st-key-max_new input").input_value() == "3" and visitor.steps == 5
    visitor.press("decode", 6)  # the run goes on with the limit it was begun with
    visitor.page.wait_for_selector(".tbt-changed")
    visitor.press("prefill", 1).press("decode", 2).press("decode", 3)
    assert "length you allowed" in visitor.comes_to_a_stop().screen()["notice"]


def test_c05_a_long_pass_is_ended_by_reset_and_other_controls_answer_meanwhile(visit: Any) -> None:
    visitor = visit().open_stage(model="smollm2", lang="en", cache=1)
    visitor.write_prompt("one two three four five six seven eight " * 500).click("prefill")
    visitor.page.wait_for_selector(".tbt-working")
    visitor.set_number("seed", "5", seed="5")
    assert "at work" in visitor.screen()["notice"] and visitor.can("reset") and not visitor.can("prefill")
    visitor.click("reset").page.wait_for_selector("[data-act=reset][aria-disabled=true]")
    assert visitor.at_rest().steps == 0
    visitor.write_prompt("Name three fruits.").press("prefill", 1)


def test_c07_the_picture_stays_the_same_element_of_the_same_size(visit: Any) -> None:
    visitor = visit().open_stage(**TINY).press("prefill", 1)
    look = "canvas => [canvas.isConnected, canvas.width, canvas.height, canvas.clientWidth, canvas.clientHeight]"
    canvas = visitor.page.query_selector(".tbt-view canvas")
    before = canvas.evaluate(look)
    for steps in (2, 3, 4):
        visitor.press("decode", steps)
        assert canvas.evaluate(look) == before
    visitor.set_number("seed", "3", seed="3").at_rest()
    visitor.press("decode", 5)
    assert before[0] is True and canvas.evaluate(look) == before


@pytest.mark.parametrize("language", ["en", "zh"])
def test_c11_nothing_comes_from_outside_and_fonts_are_there(visit: Any, language: str) -> None:
    """Whatever asks another machine is refused here, and would be noted by `visit` as a problem."""
    visitor: Visitor = visit(locale="zh-CN" if language == "zh" else "en-US", fresh=True)
    visitor.page.context.route(lambda url: not url.startswith(visitor.address), lambda route: route.abort())
    visitor.open(f"/?lang={language}").open_stage(**TINY | {"lang": language}).press("prefill", 1)
    visitor.page.locator(".tbt-table .tbt-open").first.click()
    visitor.page.wait_for_selector("[data-testid=stDialog] .katex-html")
    visitor.page.wait_for_function(
        """() => document.fonts.status === 'loaded' && [...document.fonts].every((font) => font.status !== 'error')
          && [...document.fonts].some((font) => font.family.includes('KaTeX') && font.status === 'loaded')"""
    )
    assert visitor.page.evaluate(DISTINCT_GLYPHS, ["逐", "字", "依", "\uffff"]) == 4


def test_c15_a_class_that_leaves_gives_its_memory_back(tmp_path: Path) -> None:
    """Thirty sessions with a nearly full cache each, all closed, then thirty more: they take the place of the first.

    What streamlit keeps of a closed session for twenty seconds, and the record without tensors, may still be there.
    """
    with serving(tmp_path) as server:
        first, caches = memory_of_a_class(server)
        second, _ = memory_of_a_class(server)
    assert second - first < 0.1 * first
    assert second - first < 0.8 * caches, "the caches of those who left are still there"


def memory_of_a_class(server: Server) -> tuple[int, int]:
    """What the server holds while thirty sessions have a run each, and how much of it are their caches."""
    with ExitStack() as all_of_them:
        clients = [all_of_them.enter_context(session(server.address, "model=tiny", "月" * 1000)) for _ in range(MANY)]
        runs = [(client.press("prefill"), client.press("decode"))[1] for client in clients]
        assert {run["total"] for run in runs} == {2}
        return server.resident_bytes, sum(run["steps"][-1]["kv_reserved"] for run in runs)


def test_c21_enter_in_the_prompt_starts_nothing(visit: Any) -> None:
    """Neither the Enter that confirms a composed word, nor one after it, nor the one that hands the text over."""
    visitor = visit().open_stage(model="tiny", lang="en", prompt="")
    area = visitor.page.locator(".st-key-prompt textarea")
    area.focus()
    keyboard = visitor.page.context.new_cdp_session(visitor.page)
    keyboard.send("Input.imeSetComposition", {"text": "bai", "selectionStart": 3, "selectionEnd": 3})
    keyboard.send("Input.dispatchKeyEvent", {"type": "keyDown", "key": "Enter", "windowsVirtualKeyCode": 229})
    keyboard.send("Input.insertText", {"text": "白"})
    area.press("Enter")
    area.press("Control+Enter")
    visitor.address_says(prompt="白\n").at_rest()
    assert visitor.steps == 0 and visitor.can("prefill") and not visitor.can("reset")


@pytest.mark.parametrize("dark", [False, True])
def test_c22_what_is_written_on_the_canvas_has_contrast(visit: Any, dark: bool) -> None:
    """And K differs from V by its side of the cell, prefill from decode by a frame with words."""
    visitor = visit(dark=dark).open_stage(**TINY).press("prefill", 1)
    assert weak_inks(visitor.page, ("ink", "muted", "prefill-ink", "decode", "weights-ink")) == [], LEAST


@pytest.mark.parametrize(("tokens", "is_reduced"), [(10, False), (200, False), (1000, True)])
def test_d01_a_long_prompt_is_shown_soon_and_says_what_it_leaves_out(visit: Any, tokens: int, is_reduced: bool) -> None:
    visitor = visit().open_stage(model="tiny", lang="en").write_prompt("月" * tokens)
    for action, steps in (("prefill", 1), ("decode", 2)):
        visitor.page.evaluate(CLOCK, action)
        visitor.press(action, steps)
        seconds = visitor.page.wait_for_function("window.secondsToPaint", timeout=PATIENCE_MS).json_value()
        model_seconds = visitor.page.evaluate(
            "document.querySelector('.tbt-table tbody tr:last-child').lastChild.textContent"
        )
        assert seconds < 3 + (float(model_seconds.split()[0]) / (1000 if model_seconds.endswith("ms") else 1))
    shown = visitor.screen()
    n_tokens = int(shown["ledger"][-1][4].replace(",", "")) + 1
    left_out = n_tokens - len(shown["chips"])
    assert n_tokens >= tokens + 2 and (left_out > 0) == is_reduced
    assert visitor.page.get_by_text(f"{left_out} tokens not drawn").count() == is_reduced
    assert visitor.page.get_by_text("Each column stands for").is_visible() == is_reduced


def test_d02_works_without_webgl(server: Server, playwright: Playwright) -> None:
    flags = [
        *CHROMIUM_FLAGS,
        "--disable-webgl",
        "--disable-3d-apis",
        "--disable-gpu-compositing",
        "--disable-accelerated-2d-canvas",
    ]
    browser = playwright.chromium.launch(executable_path=executable(), args=flags)
    try:
        visitor = Visitor(browser.new_page(), server.address).open("/")
        assert not visitor.page.evaluate("document.createElement('canvas').getContext('webgl')")
        visitor.open_stage(**TINY).press("prefill", 1).press("decode", 2)
        assert visitor.screen()["picture"] and not visitor.problems
    finally:
        browser.close()


# How many of these characters look different: a font that lacks some draws the same box for them.
DISTINCT_GLYPHS = """(characters) => {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const family = getComputedStyle(document.querySelector('.tbt-stage')).fontFamily;
  return new Set(characters.map((character) => {
    context.clearRect(0, 0, 60, 60);
    context.font = `40px ${family}`;
    context.fillText(character, 5, 45);
    return context.getImageData(0, 0, 60, 60).data.join('');
  })).size;
}"""

# From the press of a button to the frame of the screen behind the next painting.
CLOCK = """(action) => {
  const stage = document.querySelector('.tbt-stage');
  window.secondsToPaint = null;
  let pressed = 0;
  const button = document.querySelector(`[data-act=${action}]`);
  button.addEventListener('click', () => { pressed = performance.now(); }, { once: true });
  const seen = new MutationObserver(() => {
    if (!pressed) return;
    seen.disconnect();
    requestAnimationFrame(() => { window.secondsToPaint = (performance.now() - pressed) / 1000; });
  });
  seen.observe(stage, { attributes: true, attributeFilter: ['data-painted'] });
}"""
