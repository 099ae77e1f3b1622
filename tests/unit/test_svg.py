"""Charts as text: well-formed, labelled, in proportion, and nothing in them becomes markup."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pages.shared.figures.svg import Chart, Looks, Series, chart_html, dot_amount
from pages.shared.figures.svg_frame import ticks

SVG = "{http://www.w3.org/2000/svg}"
ASSETS = Path(__file__).resolve().parents[2] / "assets"

CHART = Chart(
    key="one",
    title="A <title> & more",
    description="What it shows",
    x_title="context length n (tokens)",
    y_title="milliseconds",
    series=[
        Series(name="rising", points=[(0, 0.0), (5, 50.0), (10, 100.0)], colour="--tbt-k"),
        Series(name='quoted "name"', points=[(0, 10.0), (10, 10.0)], colour="--tbt-v", dash="6 4"),
    ],
    table_title="The numbers",
    heads=["n", "ms"],
    rows=[["0", "<b>0</b>"], ["10", "100"]],
    marks=[(5, "half")],
)


def drawings(chart: Chart) -> list[ElementTree.Element]:
    """Both drawings, parsed: what is not well-formed fails here."""
    root = ElementTree.fromstring(chart_html(chart).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))
    return [svg for svg in root.findall(f"{SVG}svg") if svg.get("role") == "img"]


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


def path_of(svg: ElementTree.Element, colour: str) -> list[tuple[float, float]]:
    """The places of the path in a colour."""
    (path,) = [path for path in svg.iter(f"{SVG}path") if path.get("style", "").endswith(f"var({colour})")]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d", ""))]


def test_a_chart_says_what_it_is() -> None:
    wide, narrow = drawings(CHART)
    for svg in (wide, narrow):
        named = svg.get("aria-labelledby", "").split()
        assert [element.get("id") for element in (svg.find(f"{SVG}title"), svg.find(f"{SVG}desc"))] == named  # type: ignore[union-attr]
        assert svg.findtext(f"{SVG}title") == CHART.title and svg.findtext(f"{SVG}desc") == CHART.description
        shown = texts(svg)
        assert {CHART.x_title, CHART.y_title, "half", "0", "100"} <= set(shown)
    ids = [element.get("id") for svg in (wide, narrow) for element in svg.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) == 4


def test_the_numbers_stand_below_it() -> None:
    html = chart_html(CHART)
    assert "<details><summary>The numbers</summary>" in html
    assert "<td>&lt;b&gt;0&lt;/b&gt;</td>" in html and "<b>0</b>" not in html
    assert "rising" in html and "quoted &quot;name&quot;" in html


def test_lines_are_in_proportion() -> None:
    for svg in drawings(CHART):
        first, middle, last = path_of(svg, "--tbt-k")
        assert middle[0] - first[0] == pytest.approx(last[0] - middle[0], abs=0.11)
        assert first[1] - middle[1] == pytest.approx(middle[1] - last[1], abs=0.11)
        flat = path_of(svg, "--tbt-v")
        assert flat[0][1] == flat[1][1] and first[1] > flat[0][1] > middle[1]


def test_nothing_lies_outside_the_drawing() -> None:
    for looks in ("line", "points", "area", "steps", "columns"):
        chart = replace(CHART, series=[replace(series, looks=looks) for series in CHART.series])
        for svg in drawings(chart):
            width, height = (float(size) for size in svg.get("viewBox", "").split()[2:])
            for path in svg.iter(f"{SVG}path"):
                numbers = re.findall(r"([ML])([-\d.]+) ([-\d.]+)", path.get("d", ""))
                assert numbers and all(0 <= float(x) <= width and 0 <= float(y) <= height for _, x, y in numbers)
            for text in svg.iter(f"{SVG}text"):
                assert 0 <= float(text.get("x", "")) <= width and 0 <= float(text.get("y", "")) <= height


def test_stairs_hold_until_the_next_step() -> None:
    series = Series(name="stairs", points=[(0, 1.0), (1, 2.0), (2, 3.0)], colour="--tbt-k", looks="steps")
    for svg in drawings(replace(CHART, series=[series])):
        places = path_of(svg, "--tbt-k")
        assert len(places) == 1 + 5 + 1  # from the axis up, three heights with two corners, and down again
        heights = [y for _, y in places[1:-1]]
        assert heights[0] == heights[1] > heights[2] == heights[3] > heights[4]
        assert [x for x, _ in places][1:-1] == sorted(x for x, _ in places[1:-1])


@pytest.mark.parametrize(("tall", "amount"), [(20, 1), (43, 1), (67, 2), (200, 5), (430, 10), (5000, 200)])
def test_a_dot_is_a_whole_amount(tall: int, amount: int) -> None:
    assert dot_amount(tall) == amount
    series = Series(name="dots", points=[(1, tall), (2, 1.0), (3, 0.0)], colour="--tbt-k", looks="columns")
    for svg in drawings(replace(CHART, series=[series], marks=())):
        (path,) = [path for path in svg.iter(f"{SVG}path") if "stroke-dasharray" in path.attrib]
        pitch = float(path.get("stroke-dasharray", "").split()[1])
        heights = [float(height) for height in re.findall(r"v-([\d.]+)", path.get("d", ""))]
        assert [round((height - 0.1) / pitch) + 1 for height in heights] == [math.ceil(tall / amount), 1]
        assert pitch >= 4


@pytest.mark.parametrize("looks", ["line", "points", "area", "steps", "columns"])
@pytest.mark.parametrize("points", [[], [(3, 0.0)], [(3, 7.0)], [(1, 0.0), (2, 0.0)]])
def test_little_and_nothing_can_be_drawn(looks: Looks, points: list[tuple[float, float]]) -> None:
    chart = replace(CHART, series=[Series(name="x", points=points, colour="--tbt-k", looks=looks)], marks=())
    assert len(drawings(chart)) == 2 and "nan" not in chart_html(chart)


@pytest.mark.parametrize(
    ("most", "first", "whole", "expected"),
    [
        (10, 0, False, [0, 2, 4, 6, 8, 10]),
        (106, 0, False, [0, 50, 100]),
        (0.23, 0, False, [0, 0.05, 0.1, 0.15, 0.2]),
        (3, 1, True, [1, 2, 3]),
        (64, 41, True, [45, 50, 55, 60]),
        (5, 5, True, [5]),
    ],
)
def test_ticks_are_round(most: float, first: float, whole: bool, expected: list[float]) -> None:
    assert ticks(most, first=first, whole=whole) == expected


def test_every_colour_is_the_style_sheets() -> None:
    known = set(re.findall(r"(--tbt-[\w-]+):", (ASSETS / "page.css").read_text(encoding="utf-8")))
    sources = (ASSETS.parent / "pages" / "shared" / "figures").glob("*.py")
    used = {name for file in sources for name in re.findall(r'"(--tbt-[\w-]+)"', file.read_text(encoding="utf-8"))}
    assert used and used <= known
