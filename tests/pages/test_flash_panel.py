"""The FlashAttention panel on its own: asked, measured, refused; what is shown is what core counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.flash import Square, plain_elements, tiles_for, traffic_ratio, whole_tiles_elements
from core.lab.flash.comparison import FlashResult
from core.words import LANGUAGES, sentence
from pages.shared.figures.flash import ELEMENTS_PER_KIB, HEAD_DIMS, ratio_chart, traffic_chart
from pages.shared.numbers import count, scaled
from pages.shared.time.flash import CARDS, MEMORIES
from pages.shared.time.flash_found import kept_bytes, moved
from pages.shared.time.flash_picture import walk_data
from pages.shared.tools.race import times

N, HEAD_DIM, HEADS, KIB = 200, 16, 2, 4
SQUARE = Square(n_tokens=N, head_dim=HEAD_DIM, n_heads=HEADS)


def _panel() -> None:
    from pages.shared.time.flash import show

    show()


@pytest.fixture
def panel() -> Callable[[str], AppTest]:
    """The panel with small dials."""

    def opened(language: str) -> AppTest:
        session = AppTest.from_function(_panel, default_timeout=60)
        for key, value in (
            ("language", language),
            ("flash_n", N),
            ("flash_head_dim", HEAD_DIM),
            ("flash_heads", HEADS),
            ("flash_memory", KIB),
        ):
            session.session_state[key] = value
        session.run()
        assert not session.exception
        return session

    return opened


def parts(session: AppTest) -> list[dict[str, Any]]:
    """What the components were given."""
    return [json.loads(component.proto.json) for component in session.get("bidi_component")]


def bodies(session: AppTest) -> str:
    return "\n".join(block.proto.body for block in session.get("html"))


def said(session: AppTest) -> str:
    """All that a reader sees, drawings and their tables included."""
    drawn = [part["html"] for part in parts(session) if "html" in part]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", "\n".join([bodies(session), *drawn]))))


def walk(session: AppTest) -> list[dict[str, Any]]:
    return [part for part in parts(session) if "tiled" in part]


def measured(session: AppTest) -> FlashResult:
    """Presses the button and looks until the measurement is over, as the browser does."""
    session.button(key="flash_start").click().run()
    for _ in range(300):
        assert not session.exception
        if session.session_state["flash_job"].is_over():
            break
        session.run()
    session.run()
    assert not session.exception
    result: FlashResult = session.session_state["flash_job"].result()
    assert result.has_ended
    return result


@pytest.mark.parametrize("language", LANGUAGES)
def test_before_the_click_there_is_a_guess_and_the_formulas(panel: Callable[[str], AppTest], language: str) -> None:
    session = panel(language)
    shown = said(session)
    assert sentence("flash.none", language) in shown and not walk(session)
    assert {'data-chart="flash-traffic"', 'data-chart="flash-ratio"'} <= set(
        re.findall(r'data-chart="[\w-]+"', "".join(part.get("html", "") for part in parts(session)))
    )
    formulas = [block.value for block in session.get("latex")]
    assert len(formulas) == 2 * (1 + 2 + 2) and not [latex for latex in formulas if "\\mathrm{ms}" in latex]
    assert "tbt-takeaway" not in bodies(session)
    right = plain_elements(SQUARE) / whole_tiles_elements(
        SQUARE, tiles_for("query_outer", KIB * ELEMENTS_PER_KIB, HEAD_DIM)
    )
    radio = session.radio(key=f"flash_guess_{N}_{HEAD_DIM}_{KIB}")
    written = times(right) if language == "en" else times(right).removesuffix("×")
    answer = sentence("flash.guess_less", language, ratio=written)
    radio.set_value(radio.options.index(answer)).run()
    assert sentence("tools.guess_right", language, answer=answer) in said(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_was_counted_is_shown(panel: Callable[[str], AppTest], language: str) -> None:
    session = panel(language)
    result = measured(session)
    assert result.square == SQUARE and result.fast_elements == KIB * 512 and not result.causal
    shown = said(session)
    for way in ("plain", "query_outer", "key_outer"):
        found = result.counted[way]
        for value in (found.loaded, found.stored, moved(result, way), found.flops):
            assert count(value) in shown
    takeaway = re.findall(r'<p class="tbt-takeaway">(.*?)</p>', bodies(session))
    assert len(takeaway) == 1
    assert count(moved(result, "query_outer")) in takeaway[0] and count(moved(result, "plain")) in takeaway[0]
    assert times(traffic_ratio("query_outer", Square(n_tokens=1024, head_dim=64), 98_304)) in shown
    assert kept_bytes(result, "plain") == 4 * HEADS * (2 * N * N + N * HEAD_DIM)


def test_the_picture_gets_the_record(panel: Callable[[str], AppTest]) -> None:
    session = panel("en")
    result = measured(session)
    (sent,) = walk(session)
    assert sent.items() >= json.loads(json.dumps(walk_data(result, "query_outer"))).items()
    for kind, way in (("tiled", "query_outer"), ("plain", "plain")):
        _, _, loaded, stored, _, _ = sent[kind][-1]
        found = result.counted[way]
        assert (HEADS * loaded, HEADS * stored) == (found.loaded, found.stored)
    assert {held[0] for step in sent["plain"] for held in step[5]} == {"Q", "K", "S", "P", "V", "O"}
    session.selectbox(key="flash_order").select("key_outer").run()
    (other,) = walk(session)
    assert other["order"] == "key_outer" and other["tiled"][0][0] == [0, HEAD_DIM]
    assert session.session_state["flash_job"].result() == result  # nothing is measured again for it


def test_a_result_belongs_to_its_dials(panel: Callable[[str], AppTest]) -> None:
    session = panel("en")
    measured(session)
    session.toggle(key="flash_causal").set_value(True).run()
    assert sentence("flash.changed", "en") in said(session) and not walk(session)
    assert "tbt-takeaway" not in bodies(session)
    result = measured(session)
    assert result.causal and walk(session)
    assert sentence("flash.not_formula", "en") in said(session)
    assert "are left out" in said(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_too_many_tiles_are_a_sentence(panel: Callable[[str], AppTest], language: str) -> None:
    session = panel(language)
    session.number_input(key="flash_n").set_value(4096).run()
    session.button(key="flash_start").click().run()
    assert not session.exception and "flash_job" not in session.session_state
    (alert,) = re.findall(r'<p class="tbt-notice tbt-refusal" role="alert">(.*?)</p>', bodies(session))
    start, end = sentence("flash.too_many_tiles", language, tiles="|", most="|").split("|")[::2]
    assert alert.startswith(start) and alert.endswith(end)


def test_the_charts_draw_the_formulas() -> None:
    square = Square(n_tokens=1024, head_dim=64, n_heads=5)
    traffic = traffic_chart(square, 98_304, "en", scaled)
    one = Square(n_tokens=2048, head_dim=64)
    assert f"2,048</td><td>{scaled(plain_elements(one))}</td>" in traffic
    ratio = ratio_chart(square, 192, MEMORIES, "en", times)
    rows = re.findall(r"<tr><td>(\d+)</td>(.*?)</tr>", ratio)
    assert [int(kib) for kib, _ in rows] == list(MEMORIES) and set(CARDS) <= set(MEMORIES)
    at_a100 = re.findall(r"<td>(.*?)</td>", dict(rows)["192"])
    assert at_a100[HEAD_DIMS.index(64)] == "9.2×" and at_a100[HEAD_DIMS.index(128)] == "2.8×"
