"""What a visitor does on the KV cache page, and what should stand there: core's figures for the page's address."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Locator, Page

from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.query import asked
from core.words import sentence
from pages.shared.charts import CHARTS, formulas, say_in
from pages.shared.numbers import count, scaled_bytes
from tests.browser.visitor import PATIENCE_MS, Visitor

KV_CACHE = "/kv_cache"
DIALS = ("batch", "context", "n_layers", "n_heads", "n_kv_heads", "head_dim")
SHAPE_DIALS = DIALS[2:]
CARDS = ("kv_bytes", "kv_bytes_per_token", "weight_bytes", "fit.max_context", "fit.max_batch")
CHARTS_SHOWN = ("kv_against_context", "kv_against_batch", "kv_kinds")

# The cards' figures with their exact value and formula, as texts; and what lies open to reading on the dials.
SHOWN = """() => Object.fromEntries([...document.querySelectorAll('.tbt-cards .tbt-card')].map((card) => {
  const shown = card.querySelector('[data-figure]');
  const lines = [...card.querySelectorAll('.tbt-cost-formula span')].map((line) => line.textContent);
  return [shown.dataset.figure, {
    text: shown.textContent, exact: card.querySelector('.tbt-cost-exact')?.textContent ?? '', formula: lines,
  }];
}))"""
DIALLED = """() => Object.fromEntries([...document.querySelectorAll('.tbt-dial')].map((row) => {
  const [range, exact] = [row.querySelector('[data-dial]'), row.querySelector('[data-exact]')];
  return [range.dataset.dial, exact.value];
}))"""
ALL_DRAWN = """(names) => {
  const charts = [...document.querySelectorAll('.tbt-chart')];
  return charts.length >= names && charts.every((chart) => chart.dataset.drawn)
    && document.querySelectorAll('.tbt-cards [data-figure]').length && document.querySelector('.tbt-block svg');
}"""


def open_costs(visitor: Visitor, **settings: Any) -> Visitor:
    """Opens the page with these settings in its address, and waits until everything is drawn."""
    visitor.page.goto(f"{visitor.address}{KV_CACHE}?{urlencode(settings)}")
    return drawn(visitor)


def drawn(visitor: Visitor) -> Visitor:
    """Waits until cards, block and charts stand there."""
    visitor.page.wait_for_function(ALL_DRAWN, arg=len(CHARTS_SHOWN), timeout=PATIENCE_MS)
    return visitor.at_rest()


def address(visitor: Visitor) -> dict[str, str]:
    """The words of the address bar."""
    return {name: words[0] for name, words in parse_qs(urlsplit(visitor.page.url).query).items()}


def estimated(visitor: Visitor) -> Estimate:
    """Core's answer to what the address says."""
    words = {name: word for name, word in address(visitor).items() if name not in ("lang", "units")}
    return estimate(*asked({"model": "chapter-8b"} | words))


def figure(figures: Any, name: str) -> Any:
    """A figure of the command's JSON by its dotted name; None where there is none."""
    for key in name.split("."):
        figures = figures and figures[key]
    return figures


def expected_cards(visitor: Visitor) -> dict[str, dict[str, Any]]:
    """What the cards have to say at this address."""
    made, how = estimated(visitor), address(visitor)
    figures, found, units = estimate_json(made), formulas(made, CARDS, how["lang"]), how.get("units", "binary")
    cards = {}
    for name in CARDS:
        value, is_bytes = figure(figures, name), "bytes" in name
        texts = found.get(name) if value is not None else None
        cards[name] = {
            "text": None if value is None else scaled_bytes(value, units) if is_bytes else count(value),
            # Beyond 2 ** 53 a browser does not know the last digits, and says none.
            "exact": f"{count(value)} B" if value is not None and is_bytes and value < 2**53 else "",
            "formula": [texts["symbols"], f"= {texts['values']}"] if texts else [],
        }
    return cards


def shown_cards(visitor: Visitor) -> dict[str, dict[str, Any]]:
    """What they do say; a text in place of a number is None, unless it asks for a card that is chosen already."""
    cards: dict[str, dict[str, Any]] = visitor.page.evaluate(SHOWN)
    how = address(visitor)
    choose_one = sentence("costs.none_fit_max_context", how["lang"])
    for card in cards.values():
        is_wrong = card["text"] == choose_one and "accelerator" in how
        if not re.search(r"\d", card["text"]) and not is_wrong:
            card["text"] = None
    return cards


def cards_are_cores(visitor: Visitor) -> Visitor:
    """All cards, the block's legend and the charts come to say what core estimates for the address."""
    made, units = estimated(visitor), address(visitor).get("units", "binary")
    held = [made.weight_bytes, made.kv_bytes, *([made.fit.capacity_bytes] if made.fit else [])]
    expected = {
        "cards": expected_cards(visitor),
        "block": [scaled_bytes(value, units) for value in held],
        **{name: points(CHARTS[name](made, say_in(address(visitor)["lang"], units))["data"]) for name in CHARTS_SHOWN},
    }
    return becomes(visitor, lambda: shown(visitor), expected)


def shown(visitor: Visitor) -> dict[str, Any]:
    """What the page says, to be compared with core."""
    legend = visitor.page.locator(".tbt-block .tbt-key:not(.tbt-key-unit)").all_inner_texts()
    return {
        "cards": {name: card for name, card in shown_cards(visitor).items() if name in CARDS},
        "block": [" ".join(text.split()[-2:]) for text in legend if re.search(r"\d", text)],
        **{name: points(traces(chart(visitor.page, name))) for name in CHARTS_SHOWN},
    }


def points(data: list[dict[str, Any]]) -> list[list[Any]]:
    return [[list(trace["x"]), list(trace["y"])] for trace in data if trace.get("visible") is not False]


def becomes(visitor: Visitor, read: Callable[[], dict[str, Any]], expected: dict[str, Any]) -> Visitor:
    """Waits until what is read is what is expected; says what differs if it stays so."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (there := read()) != expected and time.monotonic() < deadline:
        visitor.page.wait_for_timeout(50)
    differing = {name: (there.get(name), wanted) for name, wanted in expected.items() if there.get(name) != wanted}
    assert not differing, f"shown, expected: {differing}"
    return visitor


def chart(page: Page, name: str) -> Locator:
    """A chart of the page by its name."""
    return page.locator(f".st-key-costs_{name} .tbt-chart")


def traces(there: Locator) -> list[dict[str, Any]]:
    """What plotly has drawn: name, column, x and y of every trace."""
    found: list[dict[str, Any]] = there.locator(".tbt-plot").evaluate(
        "(plot) => plot.data.map(({ meta, mode, visible, x, y }) => ({ meta, mode, visible, x: [...x], y: [...y] }))"
    )
    return found


def axes(there: Locator) -> dict[str, Any]:
    """The axes as they stand: title, type and ends."""
    found: dict[str, Any] = there.locator(".tbt-plot").evaluate(
        """(plot) => Object.fromEntries(['xaxis', 'yaxis'].map((name) => {
          const { title, type, range } = plot._fullLayout[name];
          return [name, { title: title.text, type, range: [...range] }];
        }))"""
    )
    return found


def dial(page: Page, name: str) -> Locator:
    return page.locator(f"[data-dial={name}]")


def exact(page: Page, name: str) -> Locator:
    return page.locator(f"[data-exact={name}]")


def dialled(visitor: Visitor) -> dict[str, int]:
    """What the dials' fields say."""
    values: dict[str, str] = visitor.page.evaluate(DIALLED)
    return {name: int(text.replace(",", "")) for name, text in values.items() if text != "–"}


def grab(page: Page, name: str, share: float) -> None:
    """Presses the mouse on a dial at a place of its way, from 0 to 1, and holds it."""
    move_to(page, name, share)
    page.mouse.down()


def move_to(page: Page, name: str, share: float) -> None:
    box = dial(page, name).bounding_box()
    assert box
    page.mouse.move(box["x"] + 10 + share * (box["width"] - 20), box["y"] + box["height"] / 2, steps=3)


def kv_text(page: Page) -> str:
    return page.locator("[data-figure=kv_bytes]").inner_text()


def changes(page: Page, before: str) -> str:
    """Waits until the KV memory is another, and says it."""
    page.wait_for_function(
        "before => document.querySelector('[data-figure=kv_bytes]').textContent !== before",
        arg=before,
        timeout=PATIENCE_MS,
    )
    return kv_text(page)


def shows_kv(visitor: Visitor, value: int, units: str = "binary") -> Visitor:
    """Waits until the KV memory is so many bytes."""
    visitor.page.wait_for_function(
        "text => document.querySelector('.tbt-cost-main .tbt-cost-exact')?.textContent === text",
        arg=f"{count(value)} B",
        timeout=PATIENCE_MS,
    )
    assert kv_text(visitor.page) == scaled_bytes(value, units)
    return visitor


def choose(visitor: Visitor, key: str, label: str, **words: str) -> Visitor:
    """Chooses from a list above the dials by its label; waits until the address holds what is given."""
    field = visitor.page.locator(f".st-key-{key} input")
    field.click()
    field.fill(label)
    visitor.page.get_by_role("option", name=label, exact=True).first.click()
    return visitor.address_says(**words).at_rest()


def switch_units(visitor: Visitor, label: str, word: str | None) -> Visitor:
    """Chooses the prefixes of bytes; the address says them unless they are the default."""
    visitor.page.locator(".st-key-units").get_by_text(label, exact=True).click()
    visitor.page.wait_for_function(
        "word => new URLSearchParams(location.search).get('units') === word", arg=word, timeout=PATIENCE_MS
    )
    return visitor.at_rest()


def downloaded(there: Locator, tool: str) -> tuple[str, bytes]:
    """Presses a chart's tool and gives the file that arrives: its name and its content."""
    with there.page.expect_download(timeout=PATIENCE_MS) as download:
        there.locator(f"[data-tool={tool}]").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def table(text: bytes) -> dict[str, list[str]]:
    """A CSV's columns by name; cells that are empty are left out."""
    header, *rows = csv.reader(io.StringIO(text.decode()))
    assert len(set(header)) == len(header), header
    return {name: [row[at] for row in rows if row[at] != ""] for at, name in enumerate(header)}
