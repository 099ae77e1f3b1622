"""A run saved and opened in another tab, and the exported page opened from disk with the network off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from core.engine.saved_run import open_saved
from core.words import sentence
from tests.browser.test_axe import serious
from tests.browser.visitor import LOOKS, SCREEN, Visitor, asked_from_now

PROMPT = "白日依山尽"
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>月"
STEPS = 5


def begun(visit: Any, language: str = "en", steps: int = STEPS, **settings: Any) -> Visitor:
    link = {"model": "tiny", "lang": language, "prompt": PROMPT, "max": 40, **settings}
    visitor: Visitor = visit().open_stage(**link).press("prefill", 1)
    for number in range(2, steps + 1):
        visitor.press("decode", number)
    visitor.settled()
    return visitor


def opened_tool(visitor: Visitor) -> Visitor:
    """The tool stands below the stage once it was chosen."""
    if not visitor.page.locator(".st-key-keepsake").count():
        visitor.page.locator(".st-key-tool button").last.click()
        visitor.page.wait_for_selector(".st-key-keepsake")
    return visitor


def download(visitor: Visitor, kind: str, folder: Path) -> Path:
    """Presses a button below the stage; the file, where a reader would find it."""
    opened_tool(visitor)
    with visitor.page.expect_download() as coming:
        visitor.page.locator(f".st-key-keepsake_{kind}_button button:visible").first.click()
    file = folder / coming.value.suggested_filename
    coming.value.save_as(file)
    return file


def drop(visitor: Visitor, file: Path) -> Visitor:
    opened_tool(visitor).page.locator(".st-key-keepsake_open input[type=file]").set_input_files(file)
    return visitor


def shown(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(SCREEN)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("steps", "chips", "text", "ledger", "picture"))


def until(page: Page, condition: str) -> None:
    """Waits until this holds on an exported page, whose policy lets playwright's own waiting evaluate nothing."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never {condition}")


def comes_to(page: Page, own: dict[str, Any]) -> None:
    """Waits until the picture has come to rest, and compares all that is shown."""
    label = json.dumps(own["picture"])
    until(page, f"document.querySelector('.tbt-view canvas').getAttribute('aria-label') === {label}")
    assert same(shown(page), own)


@pytest.mark.parametrize("settings", [{"temp": 1.2, "seed": 7}, {"cache": 0}], ids=["cache", "none"])
def test_a_saved_run_is_replayed_in_another_tab(visit: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    first = begun(visit, **settings)
    own, file = first.screen(), download(first, "save", tmp_path)
    assert len(open_saved(file.read_bytes()).trace.steps) == STEPS and file.suffix == ".tbtrun"
    visitor = begun(visit, steps=2, prompt="床前明月光，", seed=3)
    before = visitor.screen()
    drop(visitor, file).shows(STEPS)
    page = visitor.page
    assert same(visitor.screen(), own) and "UTC" in visitor.screen()["notice"]
    assert not any(visitor.can(action) for action in ("prefill", "decode", "step_back", "reset"))
    assert visitor.can("play") and "saved run" in (visitor.button("decode").get_attribute("title") or "")
    asked = asked_from_now(page)
    page.locator("[data-time=to_prefill]").click()
    page.wait_for_function(f"document.querySelectorAll('.tbt-later').length === {STEPS - 1}")
    page.locator(".tbt-view").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.tbt-inspector')?.innerText.includes('|K|')")
    wanted = "lengths of keys"
    page.wait_for_function(f"document.querySelector('.tbt-inspector').innerText.includes('{wanted}')")
    assert page.locator("[data-show=attention]").is_disabled() and asked == []
    if "cache" not in settings:
        assert page.locator("[data-focus=head]").is_disabled()
    page.locator(".st-key-keepsake_close button").click()
    visitor.shows(2)
    assert same(visitor.screen(), before)
    visitor.press("decode", 3)  # its own run goes on


def test_a_figure_of_a_file_opens_and_a_refresh_returns_to_the_own_run(visit: Any, tmp_path: Path) -> None:
    visitor = begun(visit)
    file = download(visitor, "save", tmp_path)
    visitor.press("decode", STEPS + 1)
    drop(visitor, file).shows(STEPS)
    page = visitor.page
    page.locator(".tbt-table tbody tr:last-child .tbt-open[data-figure=flops_exact]").click()
    page.wait_for_selector("[data-testid=stDialog] .tbt-opened-result")
    page.keyboard.press("Escape")
    page.wait_for_selector("[data-testid=stDialog]", state="detached")
    page.reload()
    visitor.on_stage().shows(STEPS + 1)


def test_a_wrong_file_gets_a_sentence(visit: Any, tmp_path: Path) -> None:
    visitor = begun(visit, steps=1)
    for name, content in (("holiday.jpg", b"\xff\xd8\xff\xe0" + bytes(900)), ("run.tbtrun", b"\x1f\x8b\x08")):
        file = tmp_path / name
        file.write_bytes(content)
        drop(visitor, file).page.wait_for_selector(".st-key-keepsake .tbt-refusal")
        visitor.at_rest()
    said = visitor.page.locator(".st-key-keepsake .tbt-refusal").inner_text()
    assert said == sentence("saved.damaged", "en") and visitor.steps == 1


@pytest.fixture
def reader(chromium: Browser) -> Iterator[Any]:
    """Opens a file from disk with the network off; nothing may be asked for, nothing go wrong."""
    contexts, problems = [], []

    def opened(file: Path, *, dark: bool = False, still: bool = True, width: int = 1440) -> Page:
        context = chromium.new_context(
            offline=True,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            viewport={"width": width, "height": 900},
        )
        contexts.append(context)
        page = context.new_page()
        address = file.as_uri()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: problems.append(asked.url) if asked.url != address else None)
        page.goto(address)
        page.wait_for_selector(".tbt-stage[data-painted]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_exported_page_replays_the_run_without_network(
    visit: Any, reader: Any, tmp_path: Path, language: str
) -> None:
    visitor = begun(visit, language)
    own, file = visitor.screen(), download(visitor, "page", tmp_path)
    assert file.suffix == ".html" and file.stat().st_size < 1 << 20
    page = reader(file, still=False)
    assert page.evaluate("document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[language]
    page.wait_for_selector(f".tbt-stage[data-steps='{STEPS}']")
    comes_to(page, own)
    figures = "[...document.querySelectorAll('.tbt-stage [data-figure]')].map((figure) => figure.textContent)"
    assert page.evaluate(figures) == visitor.page.evaluate(figures)
    assert page.locator(".tbt-open").count() == 0 and page.locator("[data-act=decode]").is_hidden()
    assert PROMPT in page.locator(".tbt-about").inner_text() and own["text"] in page.locator(".tbt-about").inner_text()
    later = "document.querySelectorAll('.tbt-later').length"
    page.locator(".tbt-time input").focus()
    page.keyboard.press("Home")
    until(page, f"{later} >= {STEPS - 1}")
    page.locator("[data-time=later]").click()
    page.locator("[data-time=later]").click()
    until(page, f"{later} === {STEPS - 2}")
    page.locator("[data-act=speed]").select_option("8")
    page.locator("[data-act=play]").click()
    until(page, f"{later} === 0")
    page.wait_for_selector("[data-act=play][data-drawn^=play]")
    comes_to(page, own)


@LOOKS
def test_the_exported_page_is_accessible_and_follows_the_system(
    visit: Any, reader: Any, tmp_path: Path, language: str, dark: bool
) -> None:
    page = reader(download(begun(visit, language, steps=3), "page", tmp_path), dark=dark)
    assert serious(page) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 28)" if dark else "rgb(251, 250, 247)")
    page.emulate_media(color_scheme="light" if dark else "dark")
    until(page, f"getComputedStyle(document.body).backgroundColor !== {json.dumps(paper)}")


def test_a_hostile_prompt_is_text_in_the_file_and_on_the_page(visit: Any, reader: Any, tmp_path: Path) -> None:
    visitor = begun(visit, steps=2, prompt=HOSTILE)
    page = reader(download(visitor, "page", tmp_path))
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0
    assert HOSTILE in page.locator(".tbt-about").inner_text()
    other = drop(visit().open_stage(model="tiny", lang="en"), download(visitor, "save", tmp_path)).shows(2)
    assert other.page.evaluate("window.hacked") is None and other.page.locator(".tbt-stage img").count() == 0
    assert "".join(other.labels("prompt")).startswith("<s></script>")


def test_a_narrow_screen_shows_the_exported_page(visit: Any, reader: Any, tmp_path: Path) -> None:
    page = reader(download(begun(visit, steps=2), "page", tmp_path), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
