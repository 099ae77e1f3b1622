"""Page 4 in a browser: figures follow a dial and are core's, FlashAttention's tiles walk, nothing serious for axe."""

from __future__ import annotations

import re
from typing import Any

from core.estimate.estimate import estimate
from core.estimate.flash import Square, plain_elements, tiles_for, whole_tiles_elements
from core.estimate.query import asked
from core.estimate.where import where_json
from core.words import sentence
from pages.shared.figures.flash import ELEMENTS_PER_KIB
from pages.shared.numbers import count
from pages.shared.time.flash import FIRST_HEAD_DIM, FIRST_HEADS, FIRST_MEMORY, FIRST_N
from tests.browser.test_axe import serious, still
from tests.browser.test_costs_other_pages import SHOWN, TIME, opened
from tests.browser.visitor import PATIENCE_MS, Visitor


def run_flash(visitor: Visitor) -> Visitor:
    visitor.page.locator(".st-key-flash_start button").click()
    visitor.page.wait_for_selector(".st-key-time_flash_panel .tbt-takeaway", timeout=PATIENCE_MS)
    return visitor.at_rest()


def test_a_dial_moves_the_figures_and_they_are_cores(visit: Any) -> None:
    words = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "batch": "4", "context": "2000"}
    visitor = opened(visit(), TIME, lang="en", **words)
    dial = visitor.page.locator("[data-dial=batch]")
    dial.focus()
    dial.press("ArrowUp")
    visitor.page.wait_for_function("() => new URLSearchParams(location.search).get('batch') !== '4'")
    batch = re.search(r"batch=(\d+)", visitor.at_rest().page.url)
    assert batch is not None and int(batch[1]) > 4
    shown = visitor.page.evaluate(SHOWN)
    made = where_json(estimate(*asked({**words, "batch": batch[1]})))
    assert shown["batching.limit"][0] == count(made["batching"]["limit"])
    assert shown["batching.ceiling"][0].startswith(f"{made['batching']['ceiling']:.3g}"[:4])


def test_flash_attention_runs_its_tiles_walk_and_axe_finds_nothing_serious(visit: Any) -> None:
    visitor = run_flash(opened(visit(), TIME, lang="en", model="qwen3-30b-a3b"))
    square = Square(n_tokens=FIRST_N, head_dim=FIRST_HEAD_DIM, n_heads=FIRST_HEADS)
    tiles = tiles_for("query_outer", FIRST_MEMORY * ELEMENTS_PER_KIB, FIRST_HEAD_DIM)
    walk = visitor.page.locator(".st-key-time_flash_panel input[type=range]").last
    before = walk.input_value()
    walk.focus()
    walk.press("ArrowRight")
    assert walk.input_value() != before
    for language in visitor.in_each_look():
        text = visitor.page.locator(".st-key-time_flash_panel").inner_text()
        assert sentence("flash.title", language) in text
        assert count(plain_elements(square)) in text and count(whole_tiles_elements(square, tiles)) in text
        still(visitor)
        assert serious(visitor.page) == []
