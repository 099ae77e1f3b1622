"""Page 4: figures and sentences are core's, the limits are where they are said to be, links and custom cards hold."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import models
from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.observed import decode_band, observations
from core.estimate.query import asked
from core.estimate.roofline import Roof, decode_pass, placed
from core.estimate.where import roof, where_derivations, where_json
from core.lab.roofs.steps import MeasuredStep
from core.words import LANGUAGES, sentence
from core.words import catalogue as words
from pages.shared.charts import CHARTS, say_in
from pages.shared.numbers import count, percent, significant
from pages.shared.time import machine
from pages.shared.time import roofline as roofline_panel
from pages.shared.time.charts import FIRST_CARD, STEP_CONTEXTS, steps, trails
from pages.shared.time.panel import FIGURES
from tests.pages.asking import client
from tests.pages.screen import arrive, parts, text

PAGE = "4_where_the_time_goes.py"
CURVES = {"roofline", "step_time", "batching", "attention_roof", "score_table"}
follow = partial(arrive, PAGE)
LINK = {
    "model": "llama-3.1-8b",
    "batch": "4",
    "context": "200",
    "n_layers": "40",
    "n_kv_heads": "16",
    "weight_dtype": "fp8",
    "kv_dtype": "q8_0",
    "accelerator": "a100-sxm-80gb",
}
GUESSES = {"roofline": 3, "step": 20, "batching": 400, "attention": 4, "scores": 6000}


def said(language: str, key: str, **values: object) -> str:
    return sentence(f"time.{key}", language, **values)


def core_says(link: dict[str, str]) -> Estimate:
    return estimate(*asked({"accelerator": FIRST_CARD, **link}))


def check(session: AppTest, made: Estimate, language: str) -> None:
    """The components' figures are core's, and so is every curve."""
    shown = parts(session)
    answer = json.loads(json.dumps(estimate_json(made) | where_json(made)))
    cards = [data for data in shown.values() if data["kind"] == "cards"]
    assert len(cards) == 4 and all(data["estimate"] == answer for data in cards)
    assert {card["figure"] for data in cards for card in data["cards"]} == set(FIGURES)
    of_experts = {"experts_against_batch"} if made.shape.has_experts else set()
    assert {name for name, data in shown.items() if data["kind"] == "chart"} == CURVES | of_experts
    for name in CURVES:
        figure = CHARTS[name](made, say_in(language, "binary"))
        assert shown[name]["figure"] == json.loads(json.dumps(figure)) and shown[name]["curve"] == name
        assert shown[name]["alt"] == said(language, f"alt_{name}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_runs_for_every_model(language: str) -> None:
    session = follow(language)
    for slug in models():
        session.selectbox(key="cost_model").set_value(slug).run()
        assert not session.exception, slug
        made = core_says({"model": slug})
        check(session, made, language)
        limit, ridge = where_json(made)["batching"]["limit"], significant(where_json(made)["roof"]["ridge"])
        assert ridge in text(session)
        assert limit is None or count(limit) in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_reproduces_the_page(language: str) -> None:
    session = follow(language, **LINK)
    check(session, core_says(LINK), language)
    given = {name: word if isinstance(word, str) else word[-1] for name, word in session.query_params.items()}
    assert given == {**LINK, "lang": language}


def test_a_page_without_a_card_takes_one() -> None:
    session = follow("en")
    assert session.selectbox(key="cost_accelerator").value == FIRST_CARD
    names = {"card": accelerator_named("rtx-4080").name, "first": accelerator_named(FIRST_CARD).name}
    assert said("en", "no_peak", **names) not in text(session)
    session = follow("en", accelerator="rtx-4080")
    assert session.selectbox(key="cost_accelerator").value == FIRST_CARD
    assert said("en", "no_peak", **names) in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", GUESSES)
def test_the_guesses_are_answered_by_core_and_block_nothing(language: str, name: str) -> None:
    session = follow(language)
    radio = session.radio(key=f"time_guess_{name}")
    assert radio.value is None
    for place, choice in enumerate(radio.options):
        session.radio(key=f"time_guess_{name}").set_value(_choices(name)[place]).run()
        right = _choices(name)[place] == GUESSES[name]
        key = "guess_right" if right else "guess_wrong"
        assert sentence(f"costs.{key}", language) in text(session), choice
    if name == "batching":
        assert "393" in text(session) and "421" in text(session) and "315" in text(session)
    if name == "scores":
        assert "5,772" in text(session)


def _choices(name: str) -> tuple[int, ...]:
    from importlib import import_module

    found: tuple[int, ...] = import_module(f"pages.shared.time.{name}").CHOICES
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("link", "key"),
    [
        ({"model": "llama-3.1-8b", "context": "4096"}, "beyond"),
        ({"model": "llama-3.1-8b", "context": "200"}, "below"),
        ({"model": "deepseek-v3", "accelerator": "a100-sxm-80gb"}, "never"),
    ],
)
def test_the_sentence_says_on_which_side_of_the_limit_the_dials_are(
    language: str, link: dict[str, str], key: str
) -> None:
    found = where_json(core_says(link))["batching"]
    shown = text(follow(language, **link))
    begin = said(language, f"takeaway_batching_{key}", **dict.fromkeys(PLACES, "\0")).split("\0")[0]
    assert begin in shown
    if key == "beyond":
        assert (found["limit"], found["batch"]) == (393, None) and "393" in shown and "315" in shown
    if key == "below":
        assert found["batch"] == 601 and "B = 601" in shown
    if key == "never":
        assert found["limit"] is None and said(language, "limit_full_none") in shown


PLACES = ("n", "ceiling", "ridge", "batch", "limit", "full")


def test_the_step_is_split_into_what_the_bars_show() -> None:
    made = core_says({"model": "llama-3.1-8b"})
    own = roof(made)
    assert own is not None
    bars = CHARTS["step_time"](made, say_in("en", "binary"))["data"]
    by_column = {bar["meta"]: bar for bar in bars if bar.get("meta")}
    for place, step in enumerate(steps(made, own)):
        split = step.split
        assert by_column["weights_ms"]["x"][place] == pytest.approx(split.weights_s * 1e3, rel=1e-5)
        keys_and_values = by_column["k_ms"]["x"][place] + by_column["v_ms"]["x"][place]
        assert keys_and_values == pytest.approx(split.kv_s * 1e3, rel=1e-5)
        assert by_column["compute_ms"]["x"][place] == pytest.approx(split.compute_s * 1e3, rel=1e-5)
        end = by_column["v_ms"]["base"][place] + by_column["v_ms"]["x"][place]
        assert end == pytest.approx(split.memory_s * 1e3, rel=1e-5)
        band = decode_band()
        assert step.band_s == (split.floor_s * band.least, split.floor_s * band.most)
    assert [step.n_tokens for step in steps(made, own)[1:]] == list(STEP_CONTEXTS)
    # Nobody's records are of a batch.
    assert all(step.band_s is None for step in steps(core_says({"model": "llama-3.1-8b", "batch": "2"}), own))


def test_the_page_names_every_observation_and_the_band() -> None:
    shown, band = text(follow("en")), decode_band()
    for one in observations():
        assert one.name in shown and f"{one.ratio:.2f}×" in shown and one.source.place in shown
    assert f"{band.least:.2f} to {band.most:.2f} times" in shown


def test_points_and_trails_lie_under_the_roof() -> None:
    for slug in models():
        made = core_says({"model": slug, "batch": "16"})
        own = roof(made)
        assert own is not None
        for trail in trails(made.shape, made.request, own):
            for each in trail.passes:
                assert each.flops_per_s <= own.reachable(each.intensity) * (1 + 1e-9)


def test_a_custom_card_is_in_the_address_and_its_sparse_figure_is_questioned() -> None:
    session = follow("en", model="llama-3.1-8b", accelerator="custom", card_bf16="1979", card_fp8="0")
    link = {"model": "llama-3.1-8b", "accelerator": "custom", "card_bf16": "1979", "card_fp8": "0"}
    check(session, core_says(link), "en")
    asked_there = sentence("costs.sparse_asked", "en", kind="bf16", typed="1979", card="H100 SXM", dense="989")
    assert asked_there in text(session)
    session.number_input(key="cost_card_bf16").set_value(989.0).run()
    assert not session.exception and asked_there not in text(session)
    assert sentence("costs.sparse_note", "en") in text(session)
    check(session, core_says(link | {"card_bf16": "989"}), "en")
    assert "card_bf16" not in session.query_params  # which is the default


def test_the_figures_of_the_live_route_are_the_pages() -> None:
    answer = client().get(
        "/api/curves/where", params={"model": "llama-3.1-8b", "accelerator": "h100-sxm", "lang": "zh"}
    )
    made = core_says({"model": "llama-3.1-8b"})
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(estimate_json(made) | where_json(made)))
    assert client().get("/api/curves/where", params={"model": "nothing"}).status_code == 422


def test_a_figure_opens() -> None:
    for figure in ("batching.limit", "roof.ridge", "scores.table_bytes", "batching.ceiling"):
        session = follow("en", model="llama-3.1-8b")
        session.session_state["cost_opened"] = figure
        session.run()
        assert not session.exception
        assert session.get("dialog") and session.latex, figure
        value = where_derivations(core_says({"model": "llama-3.1-8b"}))[figure].value
        assert (
            f"{value:,.2f}" in text(session)
            or f"{value:,.4g} FLOP/B" in text(session)
            or count(int(value)) in text(session)
        )
        assert (
            sentence("derivations.pairs", "en") not in text(session).split(sentence("derivations.result", "en"))[1][:60]
        )


def on_the_clock(phase: str, intensity: float, flops_per_s: float) -> MeasuredStep:
    """A step of a second."""
    flops = int(flops_per_s)
    return MeasuredStep(
        phase=phase, n_tokens=1, flops=flops, bytes_read=int(flops / intensity), seconds=1.0, intensity=intensity,
        flops_per_s=flops_per_s, floor_s=None, share=None,
    )  # fmt: skip


def test_this_machine_has_its_own_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured steps lie under it, one that does not is called impossible, and the dials do not move them."""
    own = Roof(200e9, 20e9)
    slow = on_the_clock("decode", 1.0, 10e9)
    for module in (machine, roofline_panel):
        monkeypatch.setattr(module, "this_machine", lambda: (own, "two cores"))
        monkeypatch.setattr(module, "measured_steps", lambda visit: (slow, on_the_clock("prefill", 50.0, 150e9)))
    monkeypatch.setattr("pages.shared.time.charts.this_machine", lambda: (own, "two cores"))
    session = follow("en", model="smollm2", machine="1")
    chart = parts(session)["roofline_machine"]
    moving = CHARTS["roofline_machine"](core_says({"model": "smollm2"}), say_in("en", "binary"))
    assert moving["data"][0]["name"] == "two cores" and len(chart["figure"]["data"]) == len(moving["data"]) + 1
    assert chart["figure"]["data"][-1]["x"] == [1.0, 50.0]
    assert "2.00×" in text(session) and percent(0.5) in text(session) and "1.33×" in text(session)
    assert said("en", "impossible") not in text(session)
    monkeypatch.setattr(roofline_panel, "measured_steps", lambda visit: (on_the_clock("decode", 1.0, 25e9),))
    session = follow("en", model="smollm2", machine="1")
    assert said("en", "impossible") in text(session)


def test_without_measured_roofs_there_is_no_such_switch() -> None:
    session = follow("en", machine="1")
    assert not [toggle for toggle in session.toggle if toggle.key == "time_machine"]
    assert "roofline" in parts(session)


def test_a_measured_step_is_held_against_the_roof() -> None:
    made = core_says({"model": "llama-3.1-8b"})
    own = roof(made)
    assert own is not None
    at_floor = placed(made.shape, decode_pass(made.request), own)
    on_roof = on_the_clock("decode", at_floor.intensity, at_floor.flops / at_floor.split.floor_s)
    assert machine.against_roof(on_roof, own).ratio == pytest.approx(1)


def test_no_result_is_typed_into_the_words() -> None:
    """Digits in this page's words are those of names (bf16, page 1) and formulas (2P)."""
    for language in LANGUAGES:
        digits = {
            number
            for key in words(language)
            if key.startswith("time.")
            for number in re.findall(r"\d+", words(language)[key])
        }
        assert digits <= {"1", "2", "16"}, digits
