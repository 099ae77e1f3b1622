"""While a run plays, every other control works and nothing is lost: neither the change nor the playing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.visitor import STAGE, Visitor

PROMPT = "......"  # which the model goes on about for longer than about anything else we know: for half a minute here
LONG = {"model": "tiny", "lang": "en", "prompt": PROMPT, "max": 1000, "speed": 8}


@pytest.fixture
def playing(visit: Any) -> Visitor:
    """A long run that has begun to play at eight steps a second."""
    visitor: Visitor = visit().open_stage(**LONG).press("prefill", 1).click("play").shows_more_than(2)
    return visitor.rest_after_a_click()


def goes_on(visitor: Visitor) -> None:
    """The run still plays: three more steps come by themselves, and the button offers to pause."""
    visitor.shows_more_than(visitor.steps + 2)
    assert visitor.button("play").get_attribute("data-drawn").startswith("pause")


def set_seed(visitor: Visitor) -> None:
    visitor.set_number("seed", "7", seed="7")


def set_temperature(visitor: Visitor) -> None:
    visitor.set_number("temperature", "0.7", temp="0.7")


def set_top_p(visitor: Visitor) -> None:
    visitor.set_number("top_p", "0.9", topp="0.9")


def set_max_new(visitor: Visitor) -> None:
    visitor.set_number("max_new", "150", max="150")


def switch_units(visitor: Visitor) -> None:
    visitor.page.locator(".st-key-units").get_by_text("GB", exact=True).click()
    visitor.address_says(units="decimal")
    visitor.page.wait_for_function("document.querySelector('.tbt-memory')?.textContent.includes(' kB')")


def switch_language(visitor: Visitor) -> None:
    visitor.switch("中文", "预填充").address_says(lang="zh")
    visitor.page.wait_for_function("document.querySelector('[data-act=decode]')?.innerText.includes('解码')")


def switch_cache(visitor: Visitor) -> None:
    visitor.page.locator(".st-key-use_cache label").first.click()
    visitor.address_says(cache="0")


def write_prompt(visitor: Visitor) -> None:
    area = visitor.page.locator(".st-key-prompt textarea")
    area.fill("")
    area.press_sequentially("once upon", delay=40)
    area.blur()
    visitor.address_says(prompt="once upon")
    assert area.input_value() == "once upon"


def set_speed(visitor: Visitor) -> None:
    visitor.page.locator("[data-act=speed]").select_option("2")
    visitor.address_says(speed="2")


MOMENTS = ["as a step appears", "before the next"]
# The others are changed together, below.
CHANGES = [set_top_p, set_max_new, switch_cache, write_prompt, set_speed]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_control_works_while_the_run_plays_on(playing: Visitor, change: Callable[[Visitor], None]) -> None:
    change(playing)
    goes_on(playing)
    values = playing.page.evaluate("location.search")
    playing.click("play")
    steps = playing.settled()
    assert playing.shows(steps).page.evaluate("location.search") == values
    assert len(playing.screen()["ledger"]) == steps


def test_many_changes_in_one_play_are_all_kept(playing: Visitor) -> None:
    """One after the other, as fast as a hand: what was written first is still there at the end."""
    set_seed(playing)
    set_temperature(playing)
    switch_units(playing)
    switch_language(playing)
    goes_on(playing)
    playing.address_says(seed="7", temp="0.7", units="decimal", lang="zh")
    shown = [playing.page.locator(f".st-key-{key} input").input_value() for key in ("seed", "temperature")]
    assert shown == ["7", "0.70"]


def test_a_pause_takes_effect_within_one_step(playing: Visitor) -> None:
    """C05: of many tokens, those under way at the click are the last; and what was produced stays."""
    come = playing.page.evaluate(
        f"""async () => {{
          const stage = await ({STAGE})();
          const come = stage.record.steps.length; // which the screen shows with its next frame
          document.querySelector('[data-act=play]').click();
          return come;
        }}"""
    )
    assert playing.settled() <= come + 2  # one that is being made, and one that is on its way here
    before = playing.screen()
    # Longer than three steps would take at this pace: nothing comes any more.
    playing.page.evaluate("new Promise((done) => setTimeout(done, 500))")
    assert playing.screen() == before
    playing.press("decode", before["steps"] + 1)


def test_a_double_click_on_decode_in_play_is_a_pause_and_one_step_at_most(playing: Visitor) -> None:
    at_click = playing.steps
    playing.double_click("decode")
    playing.page.wait_for_selector("[data-act=play][data-drawn^=play]")
    steps = playing.settled()
    ns = [int(row[4]) for row in playing.screen()["ledger"]]
    assert ns == list(range(ns[0], ns[0] + steps)) and steps > at_click
    playing.press("decode", steps + 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_step_back_in_play_pauses_and_undoes_one_step(playing: Visitor, moment: str) -> None:
    """A step that is under way comes first, and is then the one that goes again."""
    playing.page.evaluate(CLICK_WHEN, ["[data-act=step_back]", moment])
    playing.page.wait_for_selector("[data-act=play][data-drawn^=play]")
    steps = playing.settled()
    assert playing.page.evaluate("window.mostSteps") - steps in (0, 1)  # the one under way may never have been seen
    playing.rest_after_a_click().press("decode", steps + 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_reset_in_play_ends_the_run_and_another_can_begin(playing: Visitor, moment: str) -> None:
    playing.page.evaluate(CLICK_WHEN, ["[data-act=reset]", moment])
    playing.shows(0)
    assert playing.settled() == 0 and not playing.can("decode") and playing.can("prefill")
    playing.press("prefill", 1).press("decode", 2)


def test_a_reload_in_play_finds_the_run_paused(playing: Visitor) -> None:
    """C06: no error on the console or on the page, playing has ended cleanly, and the run is whole."""
    seen = playing.screen()
    playing.page.reload()
    playing.on_stage().shows_more_than(len(seen["ledger"]) - 1)
    steps = playing.settled()
    assert playing.button("play").get_attribute("data-drawn").startswith("play")
    shown = playing.screen()
    assert shown["chips"][: len(seen["chips"]) - 1] == [chip | {"isNewest": False} for chip in seen["chips"][:-1]]
    assert len(shown["ledger"]) == steps and playing.page.get_by_test_id("stException").count() == 0
    playing.press("decode", steps + 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_another_page_in_play_and_back(playing: Visitor, moment: str) -> None:
    """The step that is under way when the page is left is no reason for an error on either page."""
    seen = playing.steps
    playing.page.evaluate(CLICK_WHEN, ["[data-testid=stTopNavLink]", moment])
    playing.page.wait_for_selector(".st-key-path a")
    playing.at_rest().page.get_by_test_id("stTopNavLink").nth(1).click()
    playing.on_stage().shows_more_than(seen - 1)
    if playing.button("play").get_attribute("data-drawn").startswith("pause"):
        playing.click("play")
    steps = playing.settled()
    assert len(playing.screen()["ledger"]) == steps
    playing.press("decode", steps + 1)


# Clicks an element at that moment after a step has come to the screen, and notes the most steps that were ever there.
CLICK_WHEN = """([selector, moment]) => {
  const stage = document.querySelector('.tbt-stage');
  const delay = { 'as a step appears': 0, 'before the next': 90 }[moment];
  window.mostSteps = 0;
  let clicked = false;
  new MutationObserver(() => {
    window.mostSteps = Math.max(window.mostSteps, Number(stage.dataset.steps));
    if (clicked) return;
    clicked = true;
    setTimeout(() => document.querySelector(selector).click(), delay);
  }).observe(stage, { attributes: true, attributeFilter: ['data-steps'] });
}"""
