"""The KV stage by hand: moments without the server, cells and their vectors, other heads."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.model.load import LanguageModel, load_model
from pages.shared import wire
from pages.shared.bundle import bundle
from pages.shared.started import Started
from pages.shared.visit import Visit
from tests.browser.visitor import STAGE, Visitor, asked_from_now

PROMPT = "白日依山尽"
# Notes with each frame of the screen the earliest moment shown from now on: a replay may be over before a test looks.
WATCH = f"""async () => {{
  const stage = await ({STAGE})();
  window.least = Infinity;
  const look = () => {{
    window.least = Math.min(window.least, stage.timeline.at);
    requestAnimationFrame(look);
  }};
  look();
}}"""


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_model("tiny")


def begun(visit: Any, steps: int = 4, **settings: Any) -> Visitor:
    visitor: Visitor = visit(**settings.pop("tab", {})).open_stage(
        model="tiny", lang="en", prompt=PROMPT, max=60, **settings
    )
    visitor.press("prefill", 1)
    for number in range(2, steps + 1):
        visitor.press("decode", number)
    return visitor


def stage(page: Page, expression: str) -> Any:
    """A value of the stage itself: `stage(page, "timeline.at")`."""
    return page.evaluate(f"async () => {{ const stage = await ({STAGE})(); return stage.{expression}; }}")


def until(page: Page, condition: str) -> None:
    """Waits until the stage is so: `until(page, "timeline.at === 2")`."""
    for _ in range(400):
        if stage(page, condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never {condition}")


def true_run(model: LanguageModel, n_steps: int) -> Run:
    record = RecordConfig(candidates=4, kv_norms=True, queries=True)
    run = Run(model, model.prompt_ids(PROMPT, raw=True), RunConfig(max_new=60, record=record))
    for _ in range(n_steps):
        step(model, [run])
    return run


def test_looking_back_asks_nothing_and_shows_everything_as_it_was(visit: Any) -> None:
    visitor = begun(visit, 5)
    page, whole = visitor.page, visitor.settled() and visitor.screen()
    asked = asked_from_now(page)
    log = page.context.new_cdp_session(page)
    log.on("Network.webSocketFrameSent", lambda event: asked.append(str(event)))
    log.send("Network.enable")
    page.locator("[data-time=to_prefill]").click()
    page.wait_for_function("document.querySelectorAll('.tbt-later').length === 4")
    assert page.locator(".tbt-table tr[data-shown]").inner_text().startswith("Prefill")
    assert (
        visitor.screen()["text"] == whole["ledger"][0][1]
        and "step 1 of 5" in page.locator(".tbt-time output").inner_text()
    )
    page.locator("[data-time=later]").click()
    page.wait_for_function("document.querySelectorAll('.tbt-later').length === 3")
    page.locator(".tbt-time input").focus()
    page.keyboard.press("End")
    page.wait_for_function("document.querySelectorAll('.tbt-later').length === 0")
    assert visitor.screen() == whole and asked == []


def test_decode_while_looking_back_goes_on_from_the_end(visit: Any) -> None:
    visitor = begun(visit, 4)
    visitor.page.locator("[data-time=to_prefill]").click()
    visitor.rest_after_a_click().press("decode", 5)
    assert stage(visitor.page, "timeline.at") == 5 and visitor.page.locator(".tbt-later").count() == 0


def test_the_vectors_of_a_cell_are_the_caches_and_never_change(visit: Any, model: LanguageModel) -> None:
    visitor, run = begun(visit, 3), true_run(model, 3)
    page = visitor.page
    assert run.cache is not None
    page.evaluate(f"async () => (await ({STAGE})()).picture.look({{ position: 2, layer: 1, head: 1 }})")
    page.wait_for_selector(".tbt-pin:visible")
    for kind, tensor in (("k", run.cache.keys(1)), ("v", run.cache.values(1))):
        shown = np.array(stage(page, f"picture.inspector.vectors.{kind}"))
        assert np.abs(shown - tensor[1, 2].float().numpy()).max() < 2e-2
    page.locator(".tbt-pin").click()
    for number in (4, 5):
        visitor.press("decode", number)
    page.wait_for_function("document.querySelector('.tbt-inspector')?.innerText.includes('2 steps later')")
    assert "difference is 0." in page.locator(".tbt-inspector").inner_text()


def test_attention_of_another_layer_and_head_is_asked_for_and_then_comes_along(
    visit: Any, model: LanguageModel
) -> None:
    visitor, run = begun(visit, 3), true_run(model, 4)
    visitor.page.locator("[data-focus=layer]").select_option("3")
    visitor.page.locator("[data-focus=head]").select_option("2")
    for steps in (3, 4):
        if steps == 4:
            visitor.press("decode", 4)
        until(visitor.page, f"record.row({steps - 1}, 3, 2) !== null")
        shown = np.array(
            stage(
                visitor.page,
                f"record && [...stage.record.row({steps - 1}, 3, 2).weights]",
            )
        )
        assert np.abs(shown - run.attention(steps - 1, 3, 2).weights).max() < 2e-3
    visitor.page.locator("[data-show=attention]").click()
    until(visitor.page, "record.row(3, -1, 2)?.weights.length === 4 * 9")


def test_the_keyboard_reaches_moments_and_cells(visit: Any) -> None:
    visitor = begun(visit, 4)
    page = visitor.page
    page.locator(".tbt-view").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.tbt-spoken')?.textContent === 'Decode 2'")
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('.tbt-spoken')?.textContent === 'Prefill'")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tbt-inspector:visible")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.tbt-spoken')?.textContent.startsWith('Layer 1, position 7')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".tbt-inspector", state="hidden")
    page.keyboard.press(" ")
    visitor.shows_more_than(5)
    page.keyboard.press(" ")
    page.wait_for_selector("[data-act=play][data-drawn^=play]")


def test_a_finished_run_is_played_again_from_its_record(visit: Any) -> None:
    visitor = visit(still=False).open_stage(model="tiny", lang="en", prompt=PROMPT, max=4, speed=8)
    visitor.press("prefill", 1).click("play").shows(4)
    visitor.page.wait_for_selector("[data-act=play][data-drawn^=play]")
    visitor.settled()
    visitor.page.evaluate(WATCH)
    visitor.rest_after_a_click().click("play")
    visitor.page.wait_for_function("window.least < 3")
    visitor.page.wait_for_selector("[data-act=play][data-drawn^=play]")
    assert stage(visitor.page, "timeline.at") == 4 and visitor.steps == 4


def test_a_switch_in_mid_animation_keeps_the_moment_and_the_element(visit: Any) -> None:
    visitor = begun(visit, 1, tab={"still": False})
    page = visitor.page
    canvas = page.query_selector(".tbt-view canvas")
    until(page, "timeline.moves === false")
    visitor.press("decode", 2)
    page.emulate_media(color_scheme="dark")
    visitor.switch("中文", "预填充")
    assert canvas is not None and canvas.evaluate("canvas => canvas.isConnected")
    assert 1 < stage(page, "timeline.at") <= 2
    until(page, "timeline.at === 2")


def test_without_a_cache_there_is_nothing_to_look_into(visit: Any) -> None:
    visitor = visit().open_stage(model="tiny", lang="en", prompt=PROMPT, cache=0)
    visitor.press("prefill", 1).press("decode", 2).press("decode", 3)
    page = visitor.page
    assert "computed again" in visitor.screen()["picture"] and page.locator(".tbt-focus").is_hidden()
    page.evaluate(f"async () => (await ({STAGE})()).picture.look({{ position: 2, layer: 1, head: 1 }})")
    page.wait_for_function("document.querySelector('.tbt-inspector')?.innerText.includes('nothing is kept')")
    assert "none is kept" in page.locator(".tbt-caption").inner_text()


def test_two_stages_on_one_page_do_not_disturb_each_other(visit: Any, model: LanguageModel) -> None:
    run = true_run(model, 3)
    started = Started(model=model, config=run.config, in_chat=False)
    frames = []
    for name in ("one", "two"):
        header = {
            "stage": name, "answer": 1, "visit": f"visit {name}", "run": 1, "version": 3, "language": "en",
            "units": "binary", "speed": 4, "speeds": [4], "busy": "", "can": {"decode": True},
            "notice": None, "line": None,
        }  # fmt: skip
        packed = wire.run_frame(header, Visit(), started, run.trace, 0)
        frames.append(base64.b64encode(packed).decode())
    visitor = visit().open("/")
    page = visitor.page
    shown = page.evaluate(
        """async ([address, frames]) => {
          const { show, all } = await import(address);
          for (const frame of frames) {
            const data = Uint8Array.from(atob(frame), (letter) => letter.charCodeAt(0));
            const parent = document.body.appendChild(document.createElement('div'));
            await show({ data, parentElement: parent, setTriggerValue: () => undefined });
          }
          const [one, two] = all();
          one.lookAt(1);
          one.picture.look({ position: 1, layer: 1, head: 0 });
          await new Promise((done) => setTimeout(done, 200));
          return [one.shown, two.shown, one.picture.cell, two.picture.cell, one.record === two.record];
        }""",
        [f"/{bundle().path}/stage/main.js", frames],
    )
    assert shown == [0, 2, {"position": 1, "layer": 1, "head": 0}, None, False]
    visitor.problems.clear()  # the server knows nothing of these two runs, and says so when it is asked for more
