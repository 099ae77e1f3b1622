"""The address as a person meets it: back, forward, the navigation, a link that was sent; and the settings' place."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

PAGE = "/prefill_and_decode"


def address(visitor: Any) -> tuple[str, dict[str, str]]:
    """Path and parameters of the address bar."""
    parts = urlsplit(visitor.page.url)
    return parts.path, {name: words[0] for name, words in parse_qs(parts.query, keep_blank_values=True).items()}


def on_page_1(visitor: Any) -> Any:
    visitor.page.wait_for_selector(".st-key-prompt textarea")
    return visitor.at_rest()


def on_home(visitor: Any) -> Any:
    visitor.page.wait_for_selector(".st-key-path a")
    return visitor.at_rest()


def write(visitor: Any, key: str, value: str, name: str) -> None:
    """Fills a number field, leaves it, and waits until the address says so."""
    field = visitor.page.locator(f".st-key-{key} input")
    field.fill(value)
    field.blur()
    visitor.page.wait_for_url(lambda url: f"{name}=" in url)
    visitor.at_rest()


def value(visitor: Any, key: str) -> str:
    return str(visitor.page.locator(f".st-key-{key} input").input_value())


def change_three_settings(visitor: Any) -> None:
    write(visitor, "seed", "77", "seed")
    write(visitor, "temperature", "0.7", "temp")
    write(visitor, "top_p", "0.9", "topp")


CHANGED = (PAGE, {"lang": "en", "temp": "0.7", "topp": "0.9", "seed": "77"})


def test_back_leaves_the_page_and_forward_finds_the_visitors_values(visit: Any) -> None:
    visitor = on_home(visit(fresh=True).open("/"))
    visitor.page.locator(".st-key-path a").first.click()
    on_page_1(visitor)
    steps = visitor.page.evaluate("history.length")
    change_three_settings(visitor)
    assert address(visitor) == CHANGED and visitor.page.evaluate("history.length") == steps
    visitor.page.go_back()
    on_home(visitor)
    assert address(visitor) == ("/", {"lang": "en"})
    visitor.page.go_forward()
    on_page_1(visitor)
    assert address(visitor) == CHANGED
    assert [value(visitor, key) for key in ("seed", "temperature", "top_p")] == ["77", "0.70", "0.90"]


@pytest.mark.parametrize("path", ["/", f"{PAGE}?seed=nonsense", f"{PAGE}?lang=en&seed=3"])
def test_an_arrival_is_one_step_of_the_history(visit: Any, path: str) -> None:
    visitor = visit(fresh=True).open(path)
    visitor.page.wait_for_function("location.search.includes('lang=en')")
    assert visitor.at_rest().page.evaluate("history.length") == 2  # the empty tab, and the page
    assert address(visitor)[1] == ({"lang": "en", "seed": "3"} if "seed=3" in path else {"lang": "en"})


def test_the_navigation_drops_the_parameters_and_the_frame_writes_them_again(visit: Any) -> None:
    visitor = on_page_1(visit().open(PAGE))
    change_three_settings(visitor)
    visitor.page.locator(".st-key-units").get_by_text("GB", exact=True).click()
    visitor.page.wait_for_url("**units=decimal*")
    links = visitor.at_rest().page.get_by_test_id("stTopNavLink")
    links.nth(0).click()
    on_home(visitor)
    assert address(visitor) == ("/", {"lang": "en", "units": "decimal"})
    assert " MB" in visitor.page.locator(".tbt-facts").inner_text()
    links.nth(1).click()
    on_page_1(visitor)
    assert address(visitor) == (PAGE, CHANGED[1] | {"units": "decimal"})
    assert value(visitor, "seed") == "77"


def test_a_link_reproduces_the_page_for_somebody_else_and_after_a_refresh(visit: Any) -> None:
    sent = f"{PAGE}?lang=zh&units=decimal&model=tiny&cache=0&temp=0.25&max=9&prompt=%E4%BD%A0%E5%A5%BD+%26+%3Cb%3E"
    visitor = on_page_1(visit(locale="en-US").open(sent))
    for _ in range(2):
        assert "预填充" in visitor.page.locator("h1").inner_text()
        assert visitor.page.locator(".st-key-prompt textarea").input_value() == "你好 & <b>"
        assert [value(visitor, key) for key in ("temperature", "max_new")] == ["0.25", "9"]
        assert visitor.page.locator(".st-key-model input").input_value() == "tiny"
        assert not visitor.page.locator(".st-key-use_cache input").is_checked()
        assert f"{address(visitor)[0]}?{urlsplit(visitor.page.url).query}" == sent
        visitor.page.reload()
        on_page_1(visitor)


def test_a_field_that_is_emptied_returns_to_its_default(visit: Any) -> None:
    visitor = on_page_1(visit().open(f"{PAGE}?topp=0.5&max=9"))
    write(visitor, "seed", "1", "seed")
    for key, name, default in (("top_p", "topp", "1.00"), ("max_new", "max", "64")):
        field = visitor.page.locator(f".st-key-{key} input")
        field.fill("")
        field.blur()
        visitor.page.wait_for_url(lambda url, name=name: f"{name}=" not in url)
        assert value(visitor.at_rest(), key) == default


def test_an_example_fills_the_prompt(visit: Any) -> None:
    visitor = on_page_1(visit().open(f"{PAGE}?model=tiny&lang=en"))
    visitor.page.locator(".st-key-example").get_by_text("Once upon a time", exact=True).click()
    visitor.page.wait_for_function("document.querySelector('.st-key-prompt textarea')?.value === 'Once upon a time'")
    visitor.page.wait_for_url("**prompt=Once*")
    visitor.at_rest()


def test_an_input_methods_enter_starts_nothing_and_loses_nothing(visit: Any) -> None:
    visitor = on_page_1(visit().open(f"{PAGE}?prompt="))
    area = visitor.page.locator(".st-key-prompt textarea")
    area.focus()
    keyboard = visitor.page.context.new_cdp_session(visitor.page)
    keyboard.send("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    keyboard.send("Input.dispatchKeyEvent", {"type": "keyDown", "key": "Enter", "windowsVirtualKeyCode": 229})
    keyboard.send("Input.insertText", {"text": "你好"})
    area.press("Enter")  # a line of its own, as in any text
    assert area.input_value() == "你好\n" and address(visitor)[1]["prompt"] == ""
    area.blur()
    visitor.page.wait_for_function("decodeURIComponent(location.search).includes('prompt=你好')")
    assert visitor.at_rest().page.locator(".st-key-prompt textarea").input_value() == "你好\n"


@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
def test_settings_are_small_and_the_switches_stand_in_one_line(visit: Any, locale: str) -> None:
    """On a laptop the picture below the settings is what matters; each look is taken in one moment."""
    boxes = """keys => keys.map((key) => {
      const box = document.querySelector(`.st-key-${key}`).getBoundingClientRect();
      return [box.left, box.top, box.right, box.bottom];
    })"""
    wide = on_page_1(visit(locale=locale).open(PAGE)).page
    row, language, units = wide.evaluate(boxes, ["controls_row", "language_switch", "units"])
    assert row[3] - row[1] <= 150 and row[3] <= 320
    assert language[1] == units[1] and 1380 <= units[2] <= 1440
    narrow = on_page_1(visit(locale=locale, width=390, height=844).open(PAGE)).page
    row, language, units = narrow.evaluate(boxes, ["controls_row", "language_switch", "units"])
    assert language[1] == units[1] and language[2] <= units[0] and units[2] <= 390
    assert row[0] >= 0 and row[2] <= 390 and row[3] <= 660
