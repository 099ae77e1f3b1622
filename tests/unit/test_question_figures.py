"""The strip of a question: where its marks stand, and that none of their words leaves it."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.words import LANGUAGES
from pages.shared.figures.questions import Mark, Scale, curves_html, scale_for, strip_html, ticks_for

positive = st.floats(5e-324, 1e25, allow_subnormal=True)
"""Whatever can be typed."""


def write(value: float) -> str:
    return f"{value:.3g}×"


@given(st.lists(positive, min_size=1, max_size=3))
def test_all_values_stand_between_the_ends(values: list[float]) -> None:
    scale = scale_for(values, 720)
    places = [scale.x(value) for value in values]
    assert all(14 < place < 706 for place in places)
    assert sorted(places) == pytest.approx([scale.x(value) for value in sorted(values)])
    for thousand in (1000, 1024):
        ticks = ticks_for(scale, thousand)
        assert 1 <= len(ticks) <= 9 and ticks == sorted(ticks)


def test_bytes_are_marked_at_whole_units() -> None:
    scale = scale_for([2 * 2**20, 3 * 2**30], 720)
    assert ticks_for(scale, 1024) == [2**20, 10 * 2**20, 100 * 2**20, 2**30]
    assert ticks_for(scale) == [1e6, 1e7, 1e8, 1e9]


def test_no_line_runs_through_a_number() -> None:
    far, near = ([Mark("said", 5.0, "you"), Mark("outcome", value, "it")] for value in (20.0, 10.3))
    shown = [strip_html("question-prompt", marks, "all", "en", write) for marks in (far, near)]
    assert [">10×<" in html for html in shown] == [True, False] and all(">5×<" in html for html in shown)


def test_a_strip_that_begins_below_the_smallest_number_has_ticks() -> None:
    assert ticks_for(scale_for([5e-324], 720)) and ticks_for(scale_for([5e-324, 1e15], 720))


def test_equal_ratios_are_equally_far() -> None:
    scale = Scale(0, 3, 720)
    assert scale.x(10) - scale.x(1) == pytest.approx(scale.x(1000) - scale.x(100))
    assert scale.x(0) == scale.x(0.001) == 14


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_strip_shows_every_mark_in_both_sizes(language: str) -> None:
    marks = [Mark("said", 0.0, "<you>"), Mark("outcome", 6.58, "it"), Mark("believed", 2048.0, "they")]
    html = strip_html("question-prompt", marks, "all of it", language, write)
    assert html.count("<svg ") == 2 and html.count("&lt;you&gt;") == 2 and "<you>" not in html
    assert html.count("<circle") == 2 and html.count("tbt-question-close") == 2 and "1.25" in html
    for kind, anchor in (("it", "start"), ("they", "end")):
        assert re.search(rf'text-anchor="{anchor}"[^>]*>{kind}<', html)
    zone = re.search(r'tbt-question-near" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html)
    assert zone is not None
    scale = scale_for([6.58, 2048], 720)
    assert float(zone[2]) == pytest.approx(scale.x(13.16) - scale.x(3.29), abs=0.2)  # a factor of two each way
    assert math.isclose(float(zone[1]), scale.x(3.29), abs_tol=0.1)


@pytest.mark.parametrize("language", LANGUAGES)
def test_two_curves_begin_at_one(language: str) -> None:
    html = curves_html((128, 512, 1024, 2048), (1, 1, 1), (1.05, 1.1, 1.25), language, write)
    rows = re.findall(r"<tr>(.*?)</tr>", html)[1:]
    assert [re.findall(r"<td>(.*?)</td>", row) for row in rows][-1] == ["2,048", "1×", "1.25×"]
    assert len(rows) == 4 and re.findall(r"<td>(.*?)</td>", rows[0]) == ["128", "1×", "1×"]
