"""The lab report opened from disk with the network off, in both languages, and printed on A4."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from core.lab.sweep.plan import SweepPlan, SweepRow
from core.lab.sweep.report import Prediction, SweepReport
from core.words import sentence
from pages.shared.lab.report import report_html
from tests.browser.test_axe import serious
from tests.browser.visitor import LOOKS

LANGUAGES = ("en", "zh")
PRINTED_PIXELS = 665
"""176 mm between the margins of an A4 page, 96 to an inch."""
HOSTILE = "</style></title></p><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
PLAN = SweepPlan(contexts=(128, 256, 512, 1024, 2048, 4096), batches=(1, 2, 4, 8), repeats=3)


def measured(context: int, batch: int, repeat: int) -> SweepRow:
    """As of a model with 30 layers: large figures, so that tables are as wide as they come."""
    kv = 23_040 * context * batch
    return SweepRow(
        context=context,
        batch=batch,
        repeat=repeat,
        kv_bytes_formula=kv,
        kv_bytes_measured=kv,
        decode_step_s=0.12 + 0.01 * batch + kv / 4e8 * (1 + 0.03 * repeat),
        flops_chapter=10**8 * batch * (3 + context // 512),
        flops_exact=10**8 * batch * (3 + context // 512) - 12_345,
        bytes_read=268_959_744 + kv,
        disturbed=False,
    )


REPORT = SweepReport(
    model="smollm2",
    machine={
        "model": "smollm2",
        "shape": "L=30 d=576 h=9 n_kv=3 d_h=64",
        "processor": "Processor of a long name that goes on and on @ 2.60GHz",
        "date": "2026-11-30T13:38:00+00:00",
    },
    plan=PLAN,
    rows=tuple(measured(*spot) for spot in PLAN.spots()),
    predictions=(Prediction(1, 256, 0.2), Prediction(8, 4096, 1.2)),
    question="Does a longer context make a step slower?",
)


@pytest.fixture
def reader(chromium: Browser, tmp_path: Path) -> Iterator[Any]:
    """Opens a report from disk with the network off; nothing may be asked for, nothing go wrong."""
    contexts, problems = [], []

    def opened(report: SweepReport, language: str, *, dark: bool = False, width: int = 1000) -> Page:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(report_html(report, language), encoding="utf-8")
        context = chromium.new_context(
            offline=True, color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}
        )
        contexts.append(context)
        page, address = context.new_page(), file.as_uri()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: problems.append(asked.url) if asked.url != address else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def n_pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf))


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_reads_on_the_screen(reader: Any, language: str) -> None:
    page = reader(REPORT, language)
    heads = page.locator("h2").all_inner_texts()
    names = ("question", "prediction", "method", "table", "figures", "fit", "shows", "conclusion", "machine")
    assert heads == [sentence(f"report.section_{name}", language) for name in names]
    assert page.locator("figure").count() == 4
    assert page.locator("svg[role=img]:visible").count() == 4  # each once, wide or narrow
    said = page.locator("main").inner_text()
    assert "23,040" in said and REPORT.question in said
    assert page.locator(".tbt-report-line").count() >= 5
    for width in (390, 1000):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@LOOKS
def test_it_is_accessible_and_follows_the_system(reader: Any, language: str, dark: bool) -> None:
    page = reader(REPORT, language, dark=dark)
    assert serious(page) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 28)" if dark else "rgb(251, 250, 247)")


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_prints_on_a4(reader: Any, language: str) -> None:
    """From a dark screen too: dark ink, and nothing that a page's edge would cut off."""
    page = reader(REPORT, language, dark=True)
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF") and 4 <= n_pages(pdf) <= 7
    sizes = {tuple(map(float, size.split())) for size in re.findall(rb"/MediaBox\s*\[([\d. ]+)\]", pdf)}
    assert len(sizes) == 1 and sizes.pop()[2:] == pytest.approx((595.3, 841.9), abs=1)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PRINTED_PIXELS, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= PRINTED_PIXELS
    tables = "[...document.querySelectorAll('.tbt-scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    assert set(page.evaluate(tables)) == {0}
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    assert page.locator(".tbt-svg-wide:visible").count() == 4 and page.locator("footer").is_hidden()


def test_more_rows_take_more_pages(reader: Any) -> None:
    plan = replace(PLAN, contexts=tuple(range(100, 164)), repeats=1)
    long = replace(REPORT, plan=plan, rows=tuple(measured(*spot) for spot in plan.spots()))
    few, many = (n_pages(reader(report, "en").pdf(prefer_css_page_size=True)) for report in (REPORT, long))
    assert many > few + 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_measured_prints_too(reader: Any, language: str) -> None:
    page = reader(replace(REPORT, rows=(), machine={}, predictions=(), question=""), language)
    assert sentence("report.none_rows", language) in page.locator("main").inner_text()
    assert 1 <= n_pages(page.pdf(prefer_css_page_size=True)) <= 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_texts_run_nothing(reader: Any, language: str) -> None:
    machine = dict.fromkeys((*REPORT.machine, "torch", "step"), HOSTILE)
    page = reader(replace(REPORT, question=HOSTILE, conclusion=HOSTILE, model=HOSTILE, machine=machine), language)
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0
    assert page.locator(".tbt-report-own").all_inner_texts() == [HOSTILE, HOSTILE]
    assert page.title().endswith(HOSTILE) and page.locator("section").count() == 9
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000
    assert n_pages(page.pdf(prefer_css_page_size=True)) >= 4
