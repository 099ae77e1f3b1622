"""The KV cache page's dials by mouse, keyboard and typing; what stands on the page is core's for its address."""

from __future__ import annotations

from typing import Any

import pytest

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.query import MOST_CONTEXT, SHAPE, shape_numbers
from core.words import LANGUAGES, sentence
from pages.shared.costs import DIALS as SPECS
from pages.shared.numbers import count
from tests.browser.costs import (
    DIALS,
    SHAPE_DIALS,
    address,
    cards_are_cores,
    changes,
    choose,
    dial,
    dialled,
    drawn,
    exact,
    grab,
    kv_text,
    move_to,
    open_costs,
    shows_kv,
    switch_units,
)
from tests.browser.visitor import PATIENCE_MS

CHAPTER = {"batch": 1, "context": 4096, "n_layers": 36, "n_heads": 32, "n_kv_heads": 32, "head_dim": 128}
TOKEN_BYTES = 2 * 36 * 32 * 128 * 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_in_both_languages(visit: Any, language: str) -> None:
    visitor = open_costs(visit(locale="zh-CN" if language == "zh" else "en-US"))
    assert address(visitor) == {"lang": language} and dialled(visitor) == CHAPTER
    labels = [sentence(f"costs.dial_{name}", language) for name in DIALS]
    assert visitor.page.locator(".tbt-dial-label").all_inner_texts() == labels
    for name, label in zip(DIALS, labels, strict=True):
        assert visitor.page.get_by_role("slider", name=label, exact=True).get_attribute("data-dial") == name
    cards_are_cores(visitor)


@pytest.mark.parametrize(
    "words",
    [
        {"model": "mistral-7b-v0.1", "context": 100000, "accelerator": "h100-sxm", "units": "decimal"},
        {"n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "context": 2**27, "batch": 2**20, "accelerator": "l4"},
        {
            "model": "qwen3-8b",
            "n_heads": 40,
            "n_kv_heads": 5,
            "context": 1,
            "kv_dtype": "q4_0",
            "weight_dtype": "int4",
            "accelerator": "l4",
        },
    ],
    ids=lambda words: f"{words.get('model', 'own')}",
)
def test_a_link_shows_cores_figures_in_both_units(visit: Any, words: dict[str, object]) -> None:
    visitor = open_costs(visit(), lang="en", **words)
    assert address(visitor) == {"lang": "en"} | {name: str(word) for name, word in words.items()}
    cards_are_cores(visitor)
    cards_are_cores(switch_units(visitor, *(("GiB", None) if "units" in words else ("GB", "decimal"))))


@pytest.mark.parametrize(
    "path", ["n_heads=32&n_kv_heads=5", "n_heads=9&n_layers=0&batch=1e3&model=nothing", "model=deepseek-v3&n_layers=5"]
)
def test_a_link_that_makes_no_sense_still_opens_the_page(visit: Any, path: str) -> None:
    visitor = visit()
    visitor.page.goto(f"{visitor.address}/kv_cache?lang=en&{path}")
    visitor.page.wait_for_selector(".tbt-cards [data-figure], .tbt-refusal")
    assert not visitor.page.locator(".tbt-refusal").all_inner_texts()
    cards_are_cores(drawn(visitor))  # and the address names nothing that core refuses
    values = dialled(visitor)
    assert values["batch"] == 1 and values.get("n_layers", 36) == 36
    assert values.get("n_heads", 1) % values.get("n_kv_heads", 1) == 0


def test_another_model_brings_its_own_numbers(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", n_layers=10, n_heads=64, context=5000)
    for slug in ("qwen3-8b", "smollm2", "gemma-2-9b", "qwen2.5-7b"):
        choose(visitor, "cost_model", models()[slug].name, model=slug)
        own = shape_numbers(shape_named(slug))
        assert dialled(visitor) == {"batch": 1, "context": 5000} | {name: own[name] for name in SHAPE_DIALS if own}
        assert address(visitor) == {"lang": "en", "context": "5000", "model": slug}
        cards_are_cores(visitor)


def test_a_drag_is_followed_before_the_mouse_lets_go(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en")
    page, before, stood = visitor.page, kv_text(visitor.page), address(visitor)
    grab(page, "context", 0.5)
    seen = [before]
    for share in (0.6, 0.7, 0.8):
        move_to(page, "context", share)
        seen.append(changes(page, seen[-1]))
    n = dialled(visitor)["context"]
    shows_kv(visitor, n * TOKEN_BYTES)
    assert n > CHAPTER["context"] and address(visitor) == stood  # all of this without the page being told
    page.mouse.up()
    visitor.address_says(context=str(n)).at_rest()
    assert dialled(visitor) == CHAPTER | {"context": n}
    cards_are_cores(visitor)


def test_arrow_keys_move_a_dial_stop_by_stop_however_fast_they_come(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en")
    stops = SPECS["context"][1]
    at = stops.index(4096)
    dial(visitor.page, "context").focus()
    for _ in range(8):
        visitor.page.keyboard.press("ArrowRight", delay=20)
    assert dialled(visitor)["context"] == stops[at + 8]
    visitor.address_says(context=str(stops[at + 8])).at_rest()
    assert dialled(visitor)["context"] == stops[at + 8]
    visitor.page.keyboard.press("ArrowLeft")  # the focus is still there
    visitor.address_says(context=str(stops[at + 7])).at_rest()
    cards_are_cores(visitor)
    visitor.page.keyboard.press("Home")
    visitor.address_says(context="1").at_rest()
    visitor.page.keyboard.press("End")
    visitor.address_says(context=str(stops[-1])).at_rest()
    assert dial(visitor.page, "context").get_attribute("aria-valuetext") == count(stops[-1])


def test_a_dial_moved_while_the_page_answers_another_keeps_its_place(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en")
    starts = {"batch": 0, "n_layers": 35, "context": SPECS["context"][1].index(4096)}
    for round_ in range(1, 4):
        for name in starts:
            dial(visitor.page, name).press("ArrowRight")
        for name, start in starts.items():
            visitor.address_says(**{name: str(SPECS[name][1][start + round_])})
    visitor.at_rest()
    assert {name: dialled(visitor)[name] for name in ("batch", "n_layers")} == {"batch": 8, "n_layers": 39}
    cards_are_cores(visitor)


TYPED = (
    ("context", "5000", 5000),
    ("context", "12,345", 12345),
    *(("context", nonsense, 12345) for nonsense in ("", "-5", "1.5e3", "９", "9" * 40)),
    ("context", "0", 1),
    ("context", "99999999999", MOST_CONTEXT),
    ("context", " 777 ", 777),
    ("head_dim", "100", 100),
    ("n_layers", "1000000", SHAPE["n_layers"]),
    ("n_layers", "17", 17),
    ("n_kv_heads", "5", 4),
    ("n_kv_heads", "1000", 32),
    ("n_heads", "30", 30),
)


def test_a_typed_number_is_taken_exactly_or_made_sensible(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", n_kv_heads=8)
    values = CHAPTER | {"n_kv_heads": 8}
    for name, text, wanted in TYPED:
        field = exact(visitor.page, name)
        field.fill(text)
        field.press("Enter")
        values[name] = wanted
        if name == "n_heads":
            values["n_kv_heads"] = 30  # the divisor nearest to 32
        visitor.page.wait_for_function(
            "([field, text]) => field.value === text", arg=[field.element_handle(), count(wanted)]
        )
        own = {name: str(value) for name, value in values.items() if value != CHAPTER[name]}
        visitor.address_says(**own).at_rest()
        assert dialled(visitor) == values, (name, text)
        assert address(visitor) == {"lang": "en"} | own
    cards_are_cores(visitor)


def test_kv_heads_divide_the_query_heads_at_every_place_of_a_drag(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en", n_kv_heads=8)
    page = visitor.page
    grab(page, "n_heads", dial(page, "n_heads").evaluate("(range) => range.value / range.max"))
    seen = set()
    for share in (0.1, 0.2, 0.3, 0.45, 0.55, 0.65, 0.75, 0.9, 1, 0.35):
        move_to(page, "n_heads", share)
        values = dialled(visitor)
        assert values["n_heads"] % values["n_kv_heads"] == 0
        seen.add(values["n_heads"])
    page.mouse.up()
    assert len(seen) > 5
    visitor.address_says(n_heads=str(values["n_heads"])).at_rest()
    cards_are_cores(visitor)
    places = dial(page, "n_kv_heads")
    places.press("Home")
    offered = [dialled(visitor)["n_kv_heads"]]
    while len(offered) < int(places.get_attribute("max") or 0) + 1:
        places.press("ArrowRight")
        offered.append(dialled(visitor)["n_kv_heads"])
    assert offered == [number for number in range(1, values["n_heads"] + 1) if values["n_heads"] % number == 0]
    visitor.at_rest()


@pytest.mark.parametrize("slug", ["gemma-2-9b", "deepseek-v3"])
def test_layers_that_are_not_alike_cannot_be_turned_but_batch_and_context_can(visit: Any, slug: str) -> None:
    visitor = open_costs(visit(), lang="en", model=slug, weight_dtype="fp8", kv_dtype="q8_0", accelerator="h200-sxm")
    for name in SHAPE_DIALS:
        assert dial(visitor.page, name).is_disabled() and exact(visitor.page, name).is_disabled()
        assert dial(visitor.page, name).get_attribute("aria-valuetext") == sentence("costs.dial_not_one", "en")
    assert dialled(visitor) == {"batch": 1, "context": 4096}
    for name, value in (("batch", 2), ("context", 6144)):
        before = kv_text(visitor.page)
        dial(visitor.page, name).press("ArrowRight")
        changes(visitor.page, before)
        visitor.address_says(**{name: str(value)}).at_rest()
    cards_are_cores(visitor)


def test_language_units_pages_and_back_keep_what_was_dialled(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en")
    dial(visitor.page, "n_kv_heads").press("Home")
    visitor.address_says(n_kv_heads="1").at_rest()
    choose(visitor, "cost_accelerator", "H100 SXM", accelerator="h100-sxm")
    words = {"n_kv_heads": "1", "accelerator": "h100-sxm"}
    visitor.switch("中文", "KV").address_says(lang="zh").at_rest()
    visitor.page.wait_for_function(
        "text => document.querySelector('.tbt-dial-label').innerText === text",
        arg=sentence("costs.dial_batch", "zh"),
        timeout=PATIENCE_MS,
    )
    cards_are_cores(switch_units(visitor, "GB", "decimal"))
    words |= {"lang": "zh", "units": "decimal"}
    here = visitor.page.url
    visitor.page.get_by_test_id("stTopNavLink").first.click()
    visitor.page.wait_for_selector(".st-key-path a")
    assert address(visitor.at_rest()) == {"lang": "zh", "units": "decimal"}
    visitor.page.go_back()
    assert address(drawn(visitor)) == words and dialled(visitor) == CHAPTER | {"n_kv_heads": 1}
    visitor.page.get_by_test_id("stTopNavLink").last.click()
    visitor.page.wait_for_function("!location.pathname.endsWith('kv_cache')")
    visitor.at_rest().page.locator("[data-testid=stTopNavLink][href$=kv_cache]").click()
    assert address(drawn(visitor)) == words and visitor.page.url == here
    cards_are_cores(visitor)
    other = visit(locale="en-US")
    other.page.goto(here)  # the link, in somebody else's browser
    assert dialled(cards_are_cores(drawn(other))) == dialled(visitor) and address(other) == words
