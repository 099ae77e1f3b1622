"""Marks, bars of spread, labels that do not touch, values below zero, and tables as shades."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pages.shared.figures.svg import Chart, Series, chart_html
from pages.shared.figures.svg_heatmap import DARKEST_PERCENT, PALEST_PERCENT, Heatmap, heatmap_html
from pages.shared.figures.svg_marks import LABEL_PIXELS, SHAPES, apart, shape_svg

SVG = "{http://www.w3.org/2000/svg}"
POINTS = [(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)]
MARKS = Series(name="measured", points=POINTS, colour="--tbt-decode", looks="marks", shape="square", label="B = 1")
CHART = Chart(
    key="marks", title="Marks", description="What it shows", x_title="n (tokens)", y_title="ms", series=[MARKS]
)
HEATMAP = Heatmap(
    key="heat",
    title="<b>Shades</b>",
    description="What it shows",
    rows=[16, 32],
    columns=[1, 2, 4],
    values={(16, 1): 1.0, (16, 2): 2.0, (32, 1): 4.0, (32, 4): 0.0},
    row_title="n (tokens)",
    column_title="B (sequences)",
    colour="--tbt-decode",
    write="{:.1f}".format,
)


def drawings(html: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(html.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))
    return [svg for svg in root.findall(f"{SVG}svg") if svg.get("role") == "img"]


def places(svg: ElementTree.Element) -> list[tuple[float, float]]:
    """Of the marks."""
    found = [re.fullmatch(r"translate\(([\d.]+) ([\d.]+)\)", path.get("transform", "")) for path in svg.iter()]
    return [(float(one[1]), float(one[2])) for one in found if one]


def bars(svg: ElementTree.Element) -> list[tuple[float, float, float]]:
    """Place, one end and the other."""
    found = (re.match(r"M([\d.]+) ([\d.]+)V([\d.]+)M", path.get("d", "")) for path in svg.iter(f"{SVG}path"))
    return [(float(one[1]), float(one[2]), float(one[3])) for one in found if one]


def test_marks_lie_in_proportion_and_bars_around_them() -> None:
    spread = [(0.5, 1.5), (2.0, 2.0), (3.0, 6.0)]
    for svg in drawings(chart_html(replace(CHART, series=[replace(MARKS, spread=spread)]))):
        first, middle, last = places(svg)
        assert (last[0] - middle[0]) / (middle[0] - first[0]) == pytest.approx(2, abs=0.02)
        assert (middle[1] - last[1]) / (first[1] - middle[1]) == pytest.approx(2, abs=0.02)
        per_ms = first[1] - middle[1]
        for (x, low, high), (mark_x, mark_y), (_, y), ends in zip(bars(svg), places(svg), POINTS, spread, strict=True):
            assert x == mark_x
            assert low - mark_y == pytest.approx((y - ends[0]) * per_ms, abs=0.3)
            assert mark_y - high == pytest.approx((ends[1] - y) * per_ms, abs=0.3)
            assert high >= 0  # the longest bar has room


def test_a_label_stands_right_of_its_last_point_within_the_drawing() -> None:
    for svg in drawings(chart_html(CHART)):
        (label,) = [text for text in svg.iter(f"{SVG}text") if text.text == "B = 1"]
        last = places(svg)[-1]
        width = float(svg.get("viewBox", "").split()[2])
        assert last[0] < float(label.get("x", "")) < width - 30
        assert float(label.get("y", "")) == pytest.approx(last[1] + 4, abs=0.11)


def test_values_below_zero_have_their_axis() -> None:
    series = replace(MARKS, points=[(1, -2.0), (2, 0.0), (3, 1.0)], label="")
    for svg in drawings(chart_html(replace(CHART, series=[series], write="{:g}".format))):
        low, zero, high = (y for _, y in places(svg))
        assert low - zero == pytest.approx(2 * (zero - high), abs=0.3)
        ticks = {text.text: float(text.get("y", "")) for text in svg.iter(f"{SVG}text") if text.get("class") is None}
        assert ticks["0"] == pytest.approx(zero + 4, abs=0.11) and ticks["-2"] == pytest.approx(low + 4, abs=0.11)


def test_only_values_below_zero_and_only_zero_can_be_drawn() -> None:
    for points in ([(1, -3.0), (2, -1.0)], [(1, 0.0)], []):
        html = chart_html(replace(CHART, series=[replace(MARKS, points=points)]))
        assert len(drawings(html)) == 2 and "nan" not in html


def test_a_key_names_those_that_have_a_name_and_no_table_stands_without_heads() -> None:
    html = chart_html(replace(CHART, series=[MARKS, replace(MARKS, name="", shape="circle")]))
    assert "<details>" not in html and html.count("<span>") == 1


def test_shapes_are_different_and_hollow_ones_are_not_filled() -> None:
    drawn = {shape_svg(shape, 1, 2, "red") for shape in SHAPES}
    assert len(drawn) == len(SHAPES) and all("fill:red" in one for one in drawn)
    assert "fill:none;stroke:red" in shape_svg("circle", 1, 2, "red", hollow=True)


@given(some.lists(some.floats(0, 300), max_size=12))
def test_labels_do_not_touch_and_keep_their_order(heights: list[float]) -> None:
    placed = apart(heights)
    assert len(placed) == len(heights)
    by_height = [placed[index] for index in sorted(range(len(heights)), key=heights.__getitem__)]
    for above, below in pairwise(by_height):
        assert below - above >= LABEL_PIXELS - 1e-6
    if all(abs(a - b) >= LABEL_PIXELS for i, a in enumerate(heights) for b in heights[:i]):
        assert placed == pytest.approx(heights)


def test_labels_that_touch_share_the_room_around_them() -> None:
    assert apart([100.0, 100.0]) == pytest.approx([93.5, 106.5])
    assert apart([10.0, 200.0, 201.0]) == pytest.approx([10.0, 194.0, 207.0])


def shades(svg: ElementTree.Element) -> list[int | None]:
    """Percent of the colour, cell by cell; None for an open one."""
    found = (re.search(r"var\(--tbt-decode\) (\d+)%", cell.get("style", "")) for cell in svg.iter(f"{SVG}rect"))
    return [int(one[1]) if one else None for one in found]


def test_a_cell_is_as_dark_as_its_value_is_large() -> None:
    for svg in drawings(heatmap_html(HEATMAP)):
        span = DARKEST_PERCENT - PALEST_PERCENT
        quarter, half = round(PALEST_PERCENT + span / 4), round(PALEST_PERCENT + span / 2)
        assert shades(svg) == [quarter, half, None, DARKEST_PERCENT, None, PALEST_PERCENT]
        texts = [text.text for text in svg.iter(f"{SVG}text")]
        assert {"16", "32", "1", "2", "4", "1.0", "2.0", "4.0", "0.0"} <= set(texts)
        assert svg.findtext(f"{SVG}title") == "<b>Shades</b>"


def test_many_cells_stay_within_a_page_and_leave_out_what_has_no_room() -> None:
    rows, columns = list(range(1, 65)), list(range(1000, 1064))
    values = {(row, column): float(row) for row in rows for column in columns}
    wide, narrow = drawings(heatmap_html(replace(HEATMAP, rows=rows, columns=columns, values=values)))
    for svg in (wide, narrow):
        assert len(shades(svg)) == 64 * 64
        assert float(svg.get("viewBox", "").split()[3]) < 700
        texts = [text.text for text in svg.iter(f"{SVG}text")]
        assert "64.0" not in texts and "1" in texts and "1,000" in texts and len(texts) < 100


@pytest.mark.parametrize("values", [{}, {(16, 1): 0.0}])
def test_a_heatmap_of_nothing(values: dict[tuple[int, int], float]) -> None:
    assert len(drawings(heatmap_html(replace(HEATMAP, values=values)))) == 2
    assert len(drawings(heatmap_html(replace(HEATMAP, rows=[], columns=[], values={})))) == 2
