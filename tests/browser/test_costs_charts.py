"""The KV cache page's charts while dials move: drawn in place, zoom and scales kept, downloads; and opened figures."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, Route

from core.estimate.estimate import estimate_json
from core.words import sentence
from pages.shared.bundle import bundle
from pages.shared.charts import CHARTS, say_in
from pages.shared.numbers import count
from tests.browser.costs import (
    CHARTS_SHOWN,
    address,
    axes,
    becomes,
    cards_are_cores,
    changes,
    chart,
    dial,
    dialled,
    downloaded,
    drawn,
    estimated,
    figure,
    grab,
    kv_text,
    move_to,
    open_costs,
    shows_kv,
    switch_units,
    table,
    traces,
)
from tests.browser.visitor import PATIENCE_MS, Visitor

TOKEN_BYTES = 2 * 36 * 32 * 128 * 2
CARD = {"lang": "en", "accelerator": "h100-sxm"}
# Answers of the live routes come late, and how many are under way of each is counted.
SLOW = """
  const asked = window.fetch;
  window.underWay = {};
  window.most = 0;
  window.away = false;
  window.fetch = async (resource, options) => {
    const path = new URL(resource?.url ?? resource, location.href).pathname;
    if (!path.includes('/api/estimate') && !path.includes('/api/curves/')) return asked(resource, options);
    window.underWay[path] = (window.underWay[path] ?? 0) + 1;
    window.most = Math.max(window.most, window.underWay[path]);
    try {
      await new Promise((resolve) => setTimeout(resolve, 150));
      if (window.away) throw new TypeError('away');
      return await asked(resource, options);
    } finally {
      window.underWay[path] -= 1;
    }
  };
"""
LEAVING_MS = 1500  # beyond the moment after which a part counts as gone that nobody asks for
DRAWN = "(chart) => Number(chart.dataset.drawn)"


def test_a_chart_is_drawn_in_place_and_keeps_its_zoom(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD)
    page, there = visitor.page, chart(visitor.page, "kv_against_context")
    page.evaluate(
        "[...document.querySelectorAll('.tbt-plot, .tbt-plot .main-svg')].forEach((part) => { part.own = true; })"
    )
    whole = axes(there)["xaxis"]["range"]
    there.scroll_into_view_if_needed()
    box = there.locator(".nsewdrag").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=8)
    page.mouse.up()
    page.wait_for_function(
        "plot => plot._fullLayout.xaxis.range[0] > 1", arg=there.locator(".tbt-plot").element_handle()
    )
    zoomed = axes(there)["xaxis"]["range"]
    assert zoomed[0] > whole[0] and zoomed[1] < whole[1]
    dial(page, "n_layers").scroll_into_view_if_needed()
    times = {name: chart(page, name).evaluate(DRAWN) for name in CHARTS_SHOWN}
    grab(page, "n_layers", 0.3)
    for share in (0.4, 0.5, 0.6):
        before = kv_text(page)
        move_to(page, "n_layers", share)
        changes(page, before)
    out_of_view = "kv_kinds"  # nothing is asked for it until it is scrolled to
    becomes(visitor, lambda: moved(page, times), {name: name != out_of_view for name in times})
    chart(page, out_of_view).scroll_into_view_if_needed()
    becomes(visitor, lambda: moved(page, times), dict.fromkeys(times, True))
    assert axes(there)["xaxis"]["range"] == zoomed
    page.mouse.up()
    visitor.address_says(n_layers=str(dialled(visitor)["n_layers"])).at_rest()
    cards_are_cores(visitor)
    assert axes(there)["xaxis"]["range"] == zoomed
    assert page.evaluate("[...document.querySelectorAll('.tbt-plot, .tbt-plot .main-svg')].every((part) => part.own)")


def test_scales_turn_logarithmic_and_stay_so(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD)
    there = chart(visitor.page, "kv_against_context")
    button = there.locator("[data-tool=log]")
    assert types(there) == {"xaxis": "linear", "yaxis": "linear"} and button.get_attribute("aria-pressed") == "false"
    button.click()
    becomes(visitor, lambda: types(there), {"xaxis": "log", "yaxis": "log"})
    assert button.get_attribute("aria-pressed") == "true"
    dial(visitor.page, "batch").press("ArrowRight")
    visitor.address_says(batch="2").at_rest()
    cards_are_cores(visitor)
    assert types(there) == {"xaxis": "log", "yaxis": "log"}
    ends = axes(there)
    assert 10 ** ends["xaxis"]["range"][1] >= 131_072 * 0.99 and ends["yaxis"]["range"][0] > -12
    assert types(chart(visitor.page, "kv_against_batch")) == {"xaxis": "linear", "yaxis": "linear"}
    button.click()
    becomes(visitor, lambda: types(there), {"xaxis": "linear", "yaxis": "linear"})
    assert axes(there)["xaxis"]["range"] == [0, 131_072]


def test_downloads_hold_what_is_drawn(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD, units="decimal")
    dial(visitor.page, "batch").press("ArrowRight")
    visitor.address_says(batch="2").at_rest()
    cards_are_cores(visitor)
    for name, x in (("kv_against_context", "context"), ("kv_against_batch", "batch")):
        there = chart(visitor.page, name)
        file, text = downloaded(there, "csv")
        columns = {column: [float(cell) for cell in cells] for column, cells in table(text).items()}
        lines = {trace["meta"]: trace for trace in traces(there) if trace["mode"] == "lines"}
        assert file.endswith(".csv") and columns == {x: lines["kv_gb"]["x"]} | {
            of: line["y"] for of, line in lines.items()
        }
        assert list(lines) == ["keys_gb", "kv_gb", "weights_gb", "room_gb"]
    there = chart(visitor.page, "kv_kinds")
    kinds, values = table(downloaded(there, "csv")[1]).values()
    (bars,) = traces(there)
    assert kinds == bars["y"] and [float(value) for value in values] == bars["x"]
    for tool, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
        file, content = downloaded(chart(visitor.page, "kv_against_context"), tool)
        assert file.endswith(tool) and content.startswith(begins) and len(content) > 5000


def test_a_table_without_a_card_has_no_column_of_its_room(visit: Any) -> None:
    visitor = open_costs(visit(), lang="en")
    columns = table(downloaded(chart(visitor.page, "kv_against_context"), "csv")[1])
    assert list(columns) == ["context", "keys_gib", "kv_gib", "weights_gib"]
    assert {len(cells) for cells in columns.values()} == {len(columns["context"])}


def test_all_bytes_change_their_prefix_together(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD)
    for label, word, own, other in (("GB", "decimal", "GB", r"[KMGT]iB"), ("GiB", None, "GiB", r"[kMGT]B")):
        switch_units(visitor, label, word)
        cards_are_cores(visitor)
        for name in CHARTS_SHOWN:
            wanted = CHARTS[name](estimated(visitor), say_in("en", word or "binary"))["layout"]
            titles = {axis: wanted[axis].get("title", {}).get("text", "") for axis in ("xaxis", "yaxis")}
            shown = {axis: part["title"] or "" for axis, part in axes(chart(visitor.page, name)).items()}
            assert {axis: text for axis, text in titles.items() if text} == {
                axis: text for axis, text in shown.items() if titles[axis]
            }
            assert any(f"({own})" in text for text in shown.values())
        parts = ".tbt-cards, .tbt-block, .tbt-chart"
        said = " ".join(visitor.page.locator(parts).all_inner_texts())
        assert not re.search(rf"\d {other}\b|\({other}\)", said), said


def test_every_figure_opens_with_its_formula_and_its_exact_value(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD)
    dial(visitor.page, "batch").press("ArrowRight")
    visitor.address_says(batch="2").at_rest()
    figures = estimate_json(estimated(visitor))
    names = visitor.page.locator(".tbt-cards button[data-figure]").evaluate_all(
        "all => all.map((one) => one.dataset.figure)"
    )
    assert len(names) == 5
    for name in names:
        visitor.page.locator(f".tbt-cards button[data-figure='{name}']").click()
        dialog = visitor.page.get_by_test_id("stDialog")
        dialog.locator(".tbt-opened-result").wait_for(timeout=PATIENCE_MS)
        dialog.locator(".katex").nth(1).wait_for()
        assert sentence(f"derivations.figure_{name.replace('.', '_')}", "en") in dialog.inner_text()
        assert count(figure(figures, name)) in dialog.locator(".tbt-opened-result").inner_text()
        assert not dialog.locator(".katex-error").count()
        visitor.page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        visitor.at_rest()
    cards_are_cores(visitor)


def test_one_question_a_route_is_under_way_and_the_newest_is_answered(visit: Any) -> None:
    tab: Visitor = visit(fresh=True)
    tab.page.add_init_script(SLOW)
    visitor = open_costs(tab, lang="en")
    grab(visitor.page, "context", 0.5)
    for step in range(20):
        move_to(visitor.page, "context", 0.5 + step / 50)
    shows_kv(visitor, dialled(visitor)["context"] * TOKEN_BYTES)
    assert visitor.page.evaluate("window.most") == 1 and "context" not in address(visitor)
    visitor.page.evaluate("window.away = true")
    move_to(visitor.page, "context", 0.2)
    n = dialled(visitor)["context"]
    visitor.page.wait_for_timeout(400)
    visitor.page.evaluate("window.away = false")
    visitor.page.mouse.up()
    visitor.address_says(context=str(n)).at_rest()
    cards_are_cores(visitor)
    before = kv_text(visitor.page)
    dial(visitor.page, "context").press("ArrowRight")  # the routes are asked again
    changes(visitor.page, before)
    visitor.at_rest()
    cards_are_cores(visitor)


def test_dials_move_while_the_charts_library_is_still_on_its_way(visit: Any) -> None:
    visitor, held = opened_without_library(visit)
    grab(visitor.page, "context", 0.5)
    for share in (0.6, 0.7):
        before = kv_text(visitor.page)
        move_to(visitor.page, "context", share)
        changes(visitor.page, before)
    visitor.page.wait_for_timeout(300)
    for route in held:
        route.continue_()
    drawn(visitor).page.mouse.up()
    visitor.address_says(context=str(dialled(visitor)["context"])).at_rest()
    cards_are_cores(visitor)


def test_a_page_used_before_the_charts_library_has_come_keeps_its_charts(visit: Any) -> None:
    visitor, held = opened_without_library(visit)
    switch_units(visitor, "GB", "decimal")  # the page runs again, and shows charts that wait already
    for route in held:
        route.continue_()
    drawn(visitor).page.wait_for_timeout(LEAVING_MS)
    cards_are_cores(visitor)


def test_a_chart_that_hears_news_on_its_way_to_another_place_is_drawn_there(visit: Any) -> None:
    visitor = open_costs(visit(), **CARD)
    there = chart(visitor.page, "kv_against_context").element_handle()
    before = there.evaluate(DRAWN)
    drawn_away = there.evaluate(
        f"""async (root, main) => {{
          const part = Object.values((await import(main)).all()).find((one) => one.root === root);
          const place = root.parentElement;
          root.remove();
          await part.draw();
          const drawn = ({DRAWN})(root);
          part.home.move(place);
          return drawn;
        }}""",
        f"/{bundle().path}/costs/main.js",
    )
    assert drawn_away == before
    becomes(visitor, lambda: {"again": there.evaluate(DRAWN) > before}, {"again": True})


def opened_without_library(visit: Any) -> tuple[Visitor, list[Route]]:
    """The page as it stands while plotly is still on its way, and what is waited for."""
    visitor: Visitor = visit(fresh=True)
    held: list[Route] = []
    visitor.page.route("**/plotly.min.js", lambda route: held.append(route))
    visitor.page.goto(f"{visitor.address}/kv_cache?lang=en")
    visitor.page.wait_for_selector(".tbt-cards [data-figure=kv_bytes]", timeout=PATIENCE_MS)
    return visitor.at_rest(), held


def moved(page: Page, times: dict[str, int]) -> dict[str, bool]:
    """Which charts were drawn again since they had been drawn so often."""
    return {name: chart(page, name).evaluate(DRAWN) > before for name, before in times.items()}


def types(there: Any) -> dict[str, str]:
    return {axis: part["type"] for axis, part in axes(there).items()}
