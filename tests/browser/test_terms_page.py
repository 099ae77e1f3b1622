"""Page 6 in a browser: a mark opens its experiment, which runs; nothing serious for axe, nothing wider than a phone."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from core.words import LANGUAGES, sentence
from tests.browser.contrast import weak_texts
from tests.browser.test_costs_axe import NOTHING, serious_by_width
from tests.browser.visitor import PATIENCE_MS, Visitor

PAGE = "/which_term_does_it_change"


def opened(visitor: Visitor, **words: str) -> Visitor:
    visitor.open(f"{PAGE}?{urlencode(words)}").page.wait_for_selector(".tbt-terms tbody tr")
    visitor.page.wait_for_selector(".st-key-terms_bench")
    return visitor.at_rest()


def run(visitor: Visitor, name: str) -> Visitor:
    visitor.page.locator(f".st-key-terms_{name}_start button").click()
    visitor.page.wait_for_selector(".st-key-terms_experiment .tbt-takeaway", timeout=PATIENCE_MS)
    return visitor.at_rest()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_mark_opens_its_experiment_and_a_back_link_finds_it(visit: Any, language: str) -> None:
    visitor = opened(visit(locale="zh-CN" if language == "zh" else "en-US"), lang=language, live="tiny")
    visitor.page.locator(".tbt-terms .tbt-term-up button[data-choose=draft]").first.click()
    visitor.page.wait_for_function("new URLSearchParams(location.search).get('technique') === 'draft'")
    heading = sentence("terms.name_draft", language)
    visitor.page.locator(".st-key-terms_experiment h2", has_text=heading).wait_for()
    text = run(visitor, "draft").page.locator(".st-key-terms_experiment").inner_text()
    assert sentence("terms.draft_legend", language) in text
    assert visitor.page.locator(".tbt-terms-chosen button").first.get_attribute("data-choose") == "draft"


def test_axe_finds_nothing_serious_and_nothing_sticks_out(visit: Any) -> None:
    visitor = run(opened(visit(), lang="en", technique="surgery", live="tiny"), "surgery")
    for _ in visitor.in_each_look():
        assert serious_by_width(visitor, lambda: [*weak_texts(visitor.page), *sticking_out(visitor)]) == NOTHING


def sticking_out(visitor: Visitor) -> list[str]:
    main = "document.querySelector('[data-testid=stMain]')"
    is_wider = visitor.page.evaluate(f"{main}.scrollWidth > {main}.clientWidth")
    return ["the page is wider than its room"] if is_wider else []
