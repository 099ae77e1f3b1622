"""Pages 3, 4 and 8 in a browser: nothing serious for axe, figures that are core's, a config.json dropped in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.estimate.catalogue import models
from core.estimate.estimate import estimate, estimate_json
from core.estimate.query import asked
from pages.shared import numbers
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.browser.visitor import Visitor

COMPUTE, TIME, PLANNER = "/memory_and_compute", "/where_the_time_goes", "/planner"
SHOWN = """() => Object.fromEntries([...document.querySelectorAll('.tbt-cost')].map((card) => [
  card.querySelector('[data-figure]').dataset.figure,
  [card.querySelector('[data-figure]').textContent, card.querySelector('.tbt-cost-exact').textContent],
]))"""


def opened(visitor: Visitor, path: str, **words: object) -> Visitor:
    query = "&".join(f"{name}={word}" for name, word in words.items())
    visitor.page.goto(f"{visitor.address}{path}?{query}")
    visitor.page.wait_for_selector(".tbt-chart[data-drawn]")
    return visitor.at_rest()


@pytest.mark.parametrize("path", [COMPUTE, TIME, PLANNER])
def test_axe_finds_nothing_serious(visit: Any, path: str) -> None:
    visitor = opened(visit(), path, lang="en")
    for _ in visitor.in_each_look():
        assert serious_by_width(visitor) == NOTHING


@pytest.mark.parametrize(
    ("slug", "units"), [("llama-3.1-8b", "binary"), ("qwen3-30b-a3b", "decimal"), ("deepseek-v3", "binary")]
)
def test_the_cards_of_memory_and_compute_are_cores(visit: Any, slug: str, units: str) -> None:
    words = {"model": slug, "batch": "3", "context": "20000", "accelerator": "h200-sxm"}
    visitor = opened(visit(), COMPUTE, lang="en", units=units, **words)
    made = estimate_json(estimate(*asked(words)))
    shown = visitor.page.evaluate(SHOWN)
    assert {"weight_bytes", "kv_bytes", "decode.flops_exact", "prefill.flops_chapter", "params.active"} <= set(shown)
    for figure, (text, exact) in shown.items():
        value: Any = made
        for key in figure.split("."):
            value = value[key]
        if figure.endswith("bytes"):
            assert text == numbers.scaled_bytes(value, units) and exact == f"{value:,} B"
        elif ".flops" in figure:
            assert text == f"{numbers.scaled(value)}FLOP" and exact in (f"{value:,} FLOP", "")
        elif figure.startswith("params"):
            assert text == f"{value:,}"


def test_a_config_dropped_on_the_planner_is_planned_and_a_hostile_one_refused(visit: Any) -> None:
    visitor = opened(visit(), PLANNER, lang="en")
    files = visitor.page.locator("input[type=file]")
    config = dict(models()["llama-3.2-1b"].config)
    good = {"name": "mine.json", "mimeType": "application/json", "buffer": json.dumps(config).encode()}
    files.set_input_files([good])
    visitor.page.wait_for_function("document.querySelector('.tbt-plan, table')?.innerText.includes('mine')")
    for name, body, said in (
        ("broken.json", b"{", "not a JSON object"),
        ("<img src=x onerror=alert(1)>.json", json.dumps(config | {"hidden_size": "<b>"}).encode(), "hidden_size"),
    ):
        visitor.at_rest()
        files.set_input_files([{"name": name, "mimeType": "application/json", "buffer": body}])
        visitor.page.wait_for_function(
            "said => document.querySelector('.tbt-refusal')?.innerText.includes(said)", arg=said
        )
        assert visitor.page.locator(".tbt-refusal img, .tbt-refusal b").count() == 0
