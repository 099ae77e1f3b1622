"""A run from its prompt to its end and through everything a browser does to it; right each time, to the last cell.

What is right comes from a run of `core` in this process (tests/browser/truth.py), not from the pages.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from core.model.load import load_model
from tests.browser.truth import Truth
from tests.browser.visitor import Visitor, duplicate

TALL = 1300  # so high that every cell is some pixels high
MAX_NEW = 12
JOURNEYS = [("tiny", "白日依山尽"), ("smollm2", "Name three fruits.")]


@cache
def truth_of(model: str, prompt: str, max_new: int = MAX_NEW) -> Truth:
    return Truth(load_model(model), prompt, max_new)


@pytest.mark.parametrize(("model", "prompt"), JOURNEYS)
def test_a_whole_run_and_all_that_a_browser_does_to_it(visit: Any, model: str, prompt: str) -> None:
    truth = truth_of(model, prompt)
    visitor: Visitor = visit(height=TALL).open_stage(model=model, lang="en", prompt=prompt, max=MAX_NEW, speed=8)
    truth.check(visitor.press("prefill", 1), 1)
    for steps in range(2, 7):
        truth.check(visitor.press("decode", steps), steps)

    end = truth.n_steps
    visitor.click("play").shows(end)
    truth.check(visitor, end)
    assert visitor.comes_to_a_stop().screen()["notice"]

    visitor.press("step_back", end - 1).press("step_back", end - 2)
    truth.check(visitor, end - 2)
    assert visitor.can("decode") and not visitor.screen()["notice"]

    visitor.switch("中文", "预填充")
    visitor.page.wait_for_function("document.querySelector('[data-act=decode]')?.innerText.includes('解码')")
    truth.check(visitor.at_rest(), end - 2)

    visitor.page.reload()
    truth.check(visitor.on_stage().shows(end - 2), end - 2)
    assert "预填充" in visitor.page.locator("h1").inner_text()

    visitor.page.get_by_test_id("stTopNavLink").first.click()
    visitor.page.wait_for_selector(".st-key-path a")
    visitor.at_rest().page.go_back()
    truth.check(visitor.on_stage().shows(end - 2), end - 2)

    # What is gone on with after all this is what the run would have been.
    visitor.press("decode", end - 1)
    truth.check(visitor, end - 1)


@pytest.mark.parametrize(("model", "prompt"), JOURNEYS)
def test_a_pause_holds_the_run_and_play_goes_on_to_the_end(visit: Any, model: str, prompt: str) -> None:
    """So slow until the pause that a machine at work with something else does not come to the end before it."""
    truth = truth_of(model, prompt)
    visitor = (
        visit(height=TALL).open_stage(model=model, lang="en", prompt=prompt, max=MAX_NEW, speed=1).press("prefill", 1)
    )
    visitor.click("play").shows_more_than(3).click("play")
    visitor.page.wait_for_selector("[data-act=play]:has-text('Play')")
    steps = visitor.settled()
    assert 3 < steps < truth.n_steps
    truth.check(visitor.shows(steps), steps)
    visitor.page.locator("[data-act=speed]").select_option("8")
    visitor.address_says(speed="8").at_rest().click("play").shows(truth.n_steps)
    truth.check(visitor, truth.n_steps)


def test_two_reloads_in_a_row_find_the_run(visit: Any) -> None:
    """The second comes when the first has drawn the stage, but has not been answered yet."""
    truth = truth_of(*JOURNEYS[0])
    visitor = visit(height=TALL, fresh=True).open_stage(model="tiny", lang="en", prompt=JOURNEYS[0][1], max=MAX_NEW)
    visitor.press("prefill", 1).press("decode", 2)
    visitor.page.add_init_script(
        """new MutationObserver((changes, observer) => {
          if (!document.querySelector('.tbt-stage')) return;
          observer.disconnect();
          if (sessionStorage.getItem('reloads')) return;
          sessionStorage.setItem('reloads', '1');
          location.reload();
        }).observe(document, { childList: true, subtree: true })"""
    )
    visitor.page.reload()
    visitor.page.wait_for_function("sessionStorage.getItem('reloads') === '1'")
    truth.check(visitor.on_stage().shows(2), 2)


def test_a_duplicated_tab_gets_a_copy_and_both_go_on_apart(visit: Any) -> None:
    truth = truth_of(*JOURNEYS[0])
    one = visit(height=TALL).open_stage(model="tiny", lang="en", prompt=JOURNEYS[0][1], max=MAX_NEW, seed=7)
    one.press("prefill", 1).press("decode", 2).press("decode", 3)
    other = duplicate(one, visit(beside=one)).on_stage().shows(3)
    truth.check(other, 3)
    assert other.page.locator(".st-key-seed input").input_value() == "7"
    names = [tab.page.evaluate("sessionStorage.getItem('tbt.visit')") for tab in (one, other)]
    assert names[0] != names[1] and all(names)
    one.press("decode", 4)
    other.press("step_back", 2)
    truth.check(one, 4)
    truth.check(other, 2)
    other.press("reset", 0)
    truth.check(one.press("decode", 5), 5)


def test_a_second_tab_shares_nothing(visit: Any) -> None:
    """Two visitors at the same time with different models; each sees their own run only."""
    runs = [truth_of(*journey) for journey in JOURNEYS]
    tabs = [
        visit(height=TALL).open_stage(model=model, lang="en", prompt=prompt, max=MAX_NEW) for model, prompt in JOURNEYS
    ]
    for steps in (1, 2, 3):
        for tab in tabs:
            tab.click("prefill" if steps == 1 else "decode")
        for tab, truth in zip(tabs, runs, strict=True):
            truth.check(tab.shows(steps), steps)
