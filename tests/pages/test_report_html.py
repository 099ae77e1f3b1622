"""The lab report as a file: its numbers are the derived ones, both languages, hostile texts, and little to show."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as some

from core.lab.sweep.plan import SweepPlan
from core.lab.sweep.report import Prediction, SweepReport, findings
from core.words import sentence
from pages.shared.figures.lab_report import MOST_BATCHES, drawn_batches
from pages.shared.lab.report import POLICY, css_text, report_html
from pages.shared.lab.written import column, duration, rate, share, signed_share, significant
from pages.shared.numbers import MINUS
from tests.unit.test_sweep_report import BATCHES, CONTEXTS, POSITION_BYTES, WEIGHT_BYTES, made, row
from tests.unit.test_words import CJK

LANGUAGES = ("en", "zh")
HOSTILE = "</style></title><script>window.hacked = 1</script><img src=x onerror=alert(1)>&amp;{fmt}\"'\\"
MACHINE = {
    "model": "smollm2",
    "shape": "L=30 d=576 h=9 n_kv=3 d_h=64",
    "dtype": "f16",
    "device": "cpu",
    "caches": "fast fill: random keys and values",
    "step": "median of 7 decode steps behind one that warms up",
    "processor": "A processor",
    "cores": "16, 4 used",
    "date": "2026-11-30T13:29:29+00:00",
}
PREDICTIONS = (Prediction(1, 128, 0.005), Prediction(4, 1024, 0.03), Prediction(8, 64, 0.01))


def full(**values: object) -> SweepReport:
    rows = tuple(
        replace(one, decode_step_s=one.decode_step_s * (1 + 0.01 * (i % 3))) for i, one in enumerate(made().rows)
    )
    report = made(rows=rows, machine=MACHINE, model="smollm2", predictions=PREDICTIONS)
    return replace(report, **values)  # type: ignore[arg-type]


def body(html: str) -> ElementTree.Element:
    """What is not well-formed fails here."""
    inside = html[html.index("<body") : html.index("</html>")]
    return ElementTree.fromstring(inside.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))


def section(html: str, name: str) -> ElementTree.Element:
    (found,) = [one for one in body(html).iter("section") if one.get("class") == f"tbt-report-{name}"]
    return found


def text(html: str, name: str) -> str:
    return " ".join("".join(section(html, name).itertext()).split())


def tables(html: str, name: str) -> list[list[list[str]]]:
    """Tables of a section as rows of cells, heads left out."""
    return [
        [["".join(cell.itertext()) for cell in line] for line in one.iter("tr") if line.find("td") is not None]
        for one in section(html, name).iter("table")
    ]


def number(written: str) -> float:
    return float(written.replace(",", "").replace(MINUS, "-").removesuffix("%"))


def seconds_of(written: str) -> float:
    value, unit = written.split()
    return number(value) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tables_hold_what_was_measured(language: str) -> None:
    report, html = full(), report_html(full(), language)
    found = findings(report)
    times, n_bytes = tables(html, "table")
    assert len(times) == len(n_bytes) == len(found.cells) == 12
    for cell, line, of_bytes in zip(found.cells, times, n_bytes, strict=True):
        assert [number(line[0]), number(line[1])] == [cell.context, cell.batch] and line[2] == "3 / 3"
        law = found.fitted_s(cell) or 0
        quartiles = re.findall(r"[\d.]+", line[4])
        assert [number(one) for one in (line[3], *quartiles, line[5], line[6])] == pytest.approx(
            [
                1e3 * value
                for value in (
                    cell.median_s,
                    cell.first_quartile_s,
                    cell.third_quartile_s,
                    law,
                    cell.median_s - law,
                )
            ],
            abs=0.051,
        )
        assert number(line[7]) == pytest.approx(cell.row.bytes_read / cell.median_s / 1e9, rel=5e-3)
        of = cell.row
        expected = [of.context, of.batch, of.kv_bytes_formula, of.kv_bytes_measured, 0]
        assert [number(one) for one in of_bytes[:5]] == expected
        flops = [of.flops_chapter / 1e6, of.flops_exact / 1e6, of.bytes_read / 1e6]
        assert [number(one) for one in of_bytes[5:]] == pytest.approx(flops, rel=1e-3)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_fits_are_those_of_the_rows(language: str) -> None:
    report, html = full(), report_html(full(), language)
    found = findings(report)
    assert found.joint is not None and found.tested is not None
    joint, batches, held = tables(html, "fit")
    assert [line[0] for line in joint] == list("abce")
    assert [seconds_of(line[1]) for line in joint] == pytest.approx(found.joint.coefficients, rel=1e-3)
    for law, line in zip(found.laws, batches, strict=True):
        assert number(line[0]) == law.batch and law.implied_bytes_per_s is not None
        assert seconds_of(line[1]) == pytest.approx(law.intercept_s, rel=1e-3)
        assert seconds_of(line[2]) == pytest.approx(law.fit.seconds_per_position(law.batch), rel=1e-3)
        assert line[3] == f"{law.fit.r_squared:.4f}"
        shares = [100 * law.intercept_share(law.cells[place]) for place in (0, -1)]
        assert [number(one) for one in line[4:6]] == pytest.approx(shares, abs=0.051)
        assert number(line[6]) == pytest.approx(law.implied_bytes_per_s / 1e9, rel=5e-3)
    assert [(number(line[0]), number(line[1])) for line in held] == [one[:2] for one in found.tested.points]
    errors = [abs(number(line[4])) for line in held]
    assert errors == pytest.approx([100 * error for error in found.tested.errors], abs=0.051)
    said = text(html, "fit")
    assert f"R² = {found.joint.r_squared:.4f}" in said and share(found.tested.median_error) in said


@pytest.mark.parametrize("language", LANGUAGES)
def test_predictions_stand_beside_the_medians(language: str) -> None:
    html = report_html(full(), language)
    ((first, second, third),) = tables(html, "prediction")
    found = findings(full())
    for line, one in ((first, found.checked[0]), (second, found.checked[1])):
        assert one.measured_s is not None and one.error is not None
        assert number(line[2]) == pytest.approx(1e3 * one.prediction.step_s, abs=0.051)
        assert number(line[3]) == pytest.approx(1e3 * one.measured_s, abs=0.051)
        assert number(line[4]) == pytest.approx(100 * one.error, abs=0.051)
    assert third[3:] == [sentence("report.not_measured", language), "–"]
    assert sentence("report.none_prediction", language) in text(
        report_html(full(predictions=()), language), "prediction"
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_it_shows_is_computed(language: str) -> None:
    said = text(report_html(full(), language), "shows")
    law, found = findings(full()).laws[0], findings(full())
    first, last = law.cells[0], law.cells[-1]
    assert f"{POSITION_BYTES:,}" in said and f"{WEIGHT_BYTES:,}" in said
    assert sentence("report.shows_kv_equal", language, count=12) in said
    assert significant(last.median_s / first.median_s) in said and share(law.intercept_share(last)) in said
    assert sentence("report.shows_hidden", language) in said  # 11 of 13 ms
    few, many = found.cell(1024, 1), found.cell(1024, 4)
    assert few is not None and many is not None and few.median_s is not None
    ratio = many.median_s / few.median_s
    assert significant(ratio) in said and significant(4 / ratio) in said
    implied = found.laws[-1].implied_bytes_per_s
    assert implied is not None
    values = {"rate": rate(implied), "batch": "4"}
    assert sentence("report.shows_bandwidth", language, **values) in said
    middle = found.median_prediction_error
    assert middle is not None
    assert sentence("report.shows_predictions", language, count=2, error=share(middle), low=1, high=1) in said


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_measured_roof_stands_beside_the_implied_bandwidth(language: str) -> None:
    implied = findings(full()).laws[-1].implied_bytes_per_s
    assert implied is not None
    below, above = (report_html(full(roof_bytes_per_s=roof), language) for roof in (0.5 * implied, 4 * implied))
    values = {"rate": rate(implied), "batch": "4"}
    over = sentence("report.shows_bandwidth_over_roof", language, **values, roof=rate(0.5 * implied))
    of = sentence("report.shows_bandwidth_of_roof", language, **values, roof=rate(4 * implied), share="25.0%")
    assert over in text(below, "shows") and of in text(above, "shows")
    assert rate(4 * implied) in text(above, "machine")
    assert duration(WEIGHT_BYTES / (4 * implied), 3) in text(above, "shows")


def test_a_falling_line_and_a_model_whose_law_is_not_hidden() -> None:
    falling = full(rows=tuple(replace(one, decode_step_s=1 / one.context) for one in made().rows))
    said = text(report_html(falling, "en"), "shows")
    assert "no growth with n can be told" in said and "implied" not in said and "would be read" not in said
    steep = full(rows=tuple(replace(one, decode_step_s=1e-5 * one.context + 1e-6) for one in made().rows))
    assert sentence("report.shows_hidden", "en") not in text(report_html(steep, "en"), "shows")
    below = full(rows=tuple(replace(one, decode_step_s=1e-5 * one.context - 1e-4) for one in made().rows))
    assert "not above zero" in text(report_html(below, "en"), "shows")
    gap = full(rows=(*full().rows[:-1], row(1024, 4, 2, gap=-4096)))
    assert f"{MINUS}4,096 bytes" in text(report_html(gap, "en"), "shows")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_method_says_how_it_was_measured(language: str) -> None:
    def said(**values: object) -> str:
        return text(report_html(full(**values), language), "method")

    whole = said()
    assert "{128, 256, 512, 1,024}" in whole and "{1, 2, 4}" in whole and "36" in whole
    assert sentence("report.method_step", language, count=7) in whole
    assert sentence("report.method_fill_prefill", language) in whole
    assert sentence("report.method_quiet", language) in whole
    fast = said(plan=replace(made().plan, fill="fast"), machine={})
    assert sentence("report.method_fill_fast", language) in fast
    assert sentence("report.method_step", language, count=7) not in fast
    rows = full().rows
    some_rows = (*(replace(one, disturbed=True) for one in rows[:5]), *rows[5:30])
    cut = said(rows=some_rows)
    assert sentence("report.method_disturbed", language, count=5, rows=30) in cut
    assert sentence("report.method_missing", language, count=6, planned=36) in cut
    unknown = said(rows=tuple(replace(one, disturbed=None) for one in rows))
    assert sentence("report.method_unknown", language) in unknown


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_is_in_one_language(language: str) -> None:
    html = report_html(full(), language)
    shown = " ".join(body(html).itertext())
    assert f'<html lang="{({"zh": "zh-CN"}).get(language, language)}">' in html
    assert bool(CJK.search(shown)) == (language == "zh")
    if language == "zh":
        left = re.sub(r"smollm2|PyTorch|Python|processor|token|Key|Value|cpu|MFLOP|GB/s|n_kv|d_h|UTC", "", shown)
        assert re.findall(r"[A-Za-z]{4,}", left) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_asks_for_nothing(language: str) -> None:
    html = report_html(full(), language)
    assert f'content="{POLICY.replace(chr(39), "&#x27;")}"' in html
    assert "<script" not in html and "<link" not in html and "<img" not in html
    assert not re.search(r"(src|href)=|url\(|@import|https?://", html)


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_texts_are_text(language: str) -> None:
    machine = {name: HOSTILE for name in MACHINE}
    html = report_html(full(question=HOSTILE, conclusion=HOSTILE, model=HOSTILE, machine=machine), language)
    assert "<script" not in html and "<img" not in html and html.count("</style>") == 1
    for name in ("question", "conclusion", "machine", "method"):
        assert " ".join(HOSTILE.split()) in text(html, name)
    css = html[html.index("<style>") : html.index("</style>")]
    assert "hacked =" not in css and "window" in css  # in the page's head line, spelled out


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_conclusion_is_given_or_left_to_be_written(language: str) -> None:
    given_text = report_html(full(conclusion="  One line\nand another.  "), language)
    (paragraph,) = section(given_text, "conclusion").iter("p")
    assert (
        "".join(paragraph.itertext()) == "One line\nand another."
        and "tbt-report-line" not in given_text.split("</style>")[1]
    )
    empty = section(report_html(full(conclusion=" \n "), language), "conclusion")
    assert len([one for one in empty.iter("div") if one.get("class") == "tbt-report-line"]) >= 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_rows_and_few(language: str) -> None:
    nothing = report_html(full(rows=()), language)
    assert sentence("report.none_rows", language) in text(nothing, "table") and "<svg" not in nothing
    assert sentence("report.points_counted", language, rows=0, planned=36) in nothing
    assert text(nothing, "prediction").count(sentence("report.not_measured", language)) == 3
    one = report_html(full(rows=(row(128, 1),)), language)
    assert sentence("report.fit_no_line", language) in text(one, "fit") and len(tables(one, "fit")) == 0
    assert 'data-chart="report-latency"' in one and 'data-chart="report-residuals"' not in one
    assert tables(one, "table")[0][0][5:7] == ["–", "–"]
    two = report_html(full(rows=(row(128, 1), row(256, 1))), language)
    assert tables(two, "fit")[0][0][3] == sentence("report.untested_r_squared", language)
    assert sentence("report.fit_none", language) in text(two, "fit")
    four = report_html(full(rows=tuple(row(n, B) for n in (128, 256) for B in (1, 2))), language)
    assert sentence("report.fit_untested", language) in text(four, "fit")
    assert sentence("report.fit_not_tested", language) in text(four, "fit")


@pytest.mark.parametrize("language", LANGUAGES)
def test_cells_that_are_missing_stay_open(language: str) -> None:
    rows = tuple(one for one in full().rows if (one.context, one.batch) not in {(128, 4), (1024, 1)})
    html = report_html(full(rows=rows), language)
    assert len(tables(html, "table")[0]) == 10
    (heat,) = [one for one in section(html, "figures").iter("figure") if one.get("data-chart") == "report-heatmap"]
    assert sum(one.get("class") == "tbt-svg-none" for one in heat.iter()) == 2 * 2  # in both drawings


def test_more_batches_than_shapes_are_drawn_in_part() -> None:
    batches = tuple(range(1, 21))
    plan = SweepPlan(contexts=(16, 32), batches=batches, repeats=1)
    report = full(plan=plan, rows=tuple(row(*spot) for spot in plan.spots()))
    drawn = drawn_batches(findings(report))
    assert len(drawn) == MOST_BATCHES == len(set(drawn)) and (drawn[0], drawn[-1]) == (1, 20)
    html = report_html(report, "en")
    assert sentence("report.figure_some", "en", shown=MOST_BATCHES, count=20) in text(html, "figures")
    assert len(tables(html, "table")[0]) == 40


def test_figures_show_the_law_and_the_predictions() -> None:
    def chart(html: str) -> ElementTree.Element:
        return next(one for one in section(html, "figures").iter("figure") if one.get("data-chart") == "report-latency")

    wide = chart(report_html(full(), "en"))[1]
    marks = [one.get("style", "") for one in wide.iter() if one.get("transform")]
    assert len(marks) == len(CONTEXTS) * len(BATCHES) + 2  # a batch that was not measured has no shape
    assert sum("fill:none" in style for style in marks) == 2
    dashed = [one for one in wide.iter() if one.get("stroke-dasharray")]
    assert len(dashed) == len(BATCHES)
    assert "prediction" not in "".join(chart(report_html(full(predictions=()), "en"))[0].itertext())


def test_a_date_that_is_none_is_shown_as_it_is() -> None:
    assert "yesterday &lt;b&gt;" in report_html(full(machine={"date": "yesterday <b>"}), "en")
    assert "2026-11-30 13:29 (UTC)" in report_html(full(), "en")


@given(some.text(max_size=30))
def test_a_text_in_css_is_that_text(given_text: str) -> None:
    written = css_text(given_text)
    inside = written[1:-1]
    assert written[0] == written[-1] == '"' and not re.search(r"[\"<>\n\r;{}]", inside)
    assert re.sub(r"\\([0-9a-f]+) ", lambda found: chr(int(found[1], 16)), inside) == given_text


@given(some.floats(1e-9, 1e9), some.integers(2, 5))
def test_significant_figures(value: float, digits: int) -> None:
    written = significant(value, digits)
    assert "e" not in written and number(written) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert significant(-value, digits) == MINUS + written


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (0.01234, "12.34 ms"),
        (1.5e-6, "1.500 µs"),
        (0.99996, "1.000 s"),
        (0.0, "0 ns"),
        (-2.5e-7, f"{MINUS}250.0 ns"),
        (75, "75.00 s"),
    ],
)
def test_durations(length: float, written: str) -> None:
    assert duration(length) == written


def test_columns_have_one_number_of_decimals() -> None:
    write = column([0.674, 1.25], 3)
    assert [write(value) for value in (0.674, 1.25, -0.0289, -0.0001, 1234.5)] == [
        "0.674",
        "1.250",
        f"{MINUS}0.029",
        "0.000",
        "1,234.500",
    ]
    assert column([], 3)(2.0) == "2.00" and column([1e-30])(0.5) == "0.500000"
    assert [signed_share(value) for value in (0.12, -0.031, 0.0, -0.0001)] == ["+12.0%", f"{MINUS}3.1%", "0.0%", "0.0%"]
