"""Page 3: every figure is core's, the crossings are where they are said to be, links reproduce it, counting counts."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.curves import CONTEXTS, attention_equals_2p, attention_is_half, first_context
from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.flops import decode_flops
from core.estimate.query import MOST_CONTEXT, asked
from core.lab.count import count as count_products
from core.words import LANGUAGES, sentence
from core.words import catalogue as words
from pages.shared.charts import CHARTS, say_in
from pages.shared.compute_story import CHOICES, GUESS_MODEL, MOE_MODEL, parting
from pages.shared.numbers import count, percent
from tests.pages.screen import arrive, parts, text

PAGE = "3_memory_and_compute.py"
follow = partial(arrive, PAGE)
LINK = {
    "model": "llama-3.1-8b",
    "batch": "4",
    "context": "20000",
    "n_layers": "40",
    "n_kv_heads": "16",
    "weight_dtype": "fp8",
    "kv_dtype": "q8_0",
    "accelerator": "h100-sxm",
    "causal": "1",
}


def said(language: str, key: str, **values: object) -> str:
    return sentence(f"costs.{key}", language, **values)


def core_says(link: dict[str, str]) -> Estimate:
    return estimate(*asked({name: word for name, word in link.items() if name != "causal"}))


def check(session: AppTest, made: Estimate, language: str, causal: bool = False) -> None:
    """The components' figures are core's, and so is every curve."""
    shown = parts(session)
    as_json = json.loads(json.dumps(estimate_json(made)))
    cards = [data for data in shown.values() if data["kind"] == "cards"]
    assert len(cards) == 4 and all(data["estimate"] == as_json for data in cards)
    named = [card["figure"] for data in cards for card in data["cards"]]
    assert len(named) == len(set(named)) == 10
    for data in cards:
        assert set(data["formulas"]) == {card["figure"] for card in data["cards"]}
    curves = ["decode_against_context", "memory_against_context", "prefill_causal" if causal else "prefill_square"]
    curves += ["experts_against_batch"] if made.shape.has_experts else []
    assert {name for name, data in shown.items() if data["kind"] == "chart"} == set(curves)
    for name in curves:
        figure = CHARTS[name](made, say_in(language, "binary"))
        assert shown[name]["figure"] == json.loads(json.dumps(figure)) and shown[name]["curve"] == name


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_runs_for_every_model(language: str) -> None:
    session = follow(language)
    for slug in models():
        session.selectbox(key="cost_model").set_value(slug).run()
        assert not session.exception, slug
        made = core_says({"model": slug})
        check(session, made, language)
        assert takeaway(made, language) in text(session)
        assert (said(language, "dense", model=made.shape.name) in text(session)) is not made.shape.has_experts


def takeaway(made: Estimate, language: str) -> str:
    """What the last sentence must say of an estimate, reckoned here from the figures' functions."""
    request, shape = made.request, made.shape
    exact = decode_flops(shape, request.context)
    in_weights = decode_flops(shape, 1) - (decode_flops(shape, 2) - decode_flops(shape, 1))
    half = attention_is_half(shape)
    kv_half = first_context(shape, request, made.weight_bytes)

    def where(n: int | None) -> str:
        if n is None or n > MOST_CONTEXT:
            return said(language, "half_never", n=count(CONTEXTS[-1]))
        return said(language, "half_from", n=count(n))

    return said(
        language,
        "takeaway_compute",
        batch=count(request.batch),
        n=count(request.context),
        attention=percent((exact - in_weights) / exact),
        kv=percent(made.kv_bytes / (made.kv_bytes + made.weight_bytes)),
        attention_half=where(half),
        kv_half=where(kv_half),
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_reproduces_the_page(language: str) -> None:
    session = follow(language, **LINK)
    check(session, core_says(LINK), language, causal=True)
    assert takeaway(core_says(LINK), language) in text(session)
    wanted = {**LINK, "lang": language}
    given = {name: word if isinstance(word, str) else word[-1] for name, word in session.query_params.items()}
    assert given == wanted
    session.toggle(key="cost_causal").set_value(False).run()
    check(session, core_says(LINK), language)
    assert "causal" not in session.query_params


def test_the_crossings_of_llama_and_what_parts_them() -> None:
    session = follow("en", model="llama-3.1-8b")
    assert "2P at n = 30,633" in text(session) and "weights at n = 122,532, which is 4 times that: h/n_kv = 4." in text(
        session
    )
    drawn = json.dumps(parts(session)["decode_against_context"]["figure"], ensure_ascii=False)
    assert said("en", "told_attention_equals_2p", n="30,633") in drawn
    drawn = json.dumps(parts(session)["memory_against_context"]["figure"], ensure_ascii=False)
    assert said("en", "told_kv_equals_weights", n="122,532") in drawn


def test_the_crossings_of_the_chapters_model_are_one() -> None:
    said_there = said("en", "crossings_same", compute="27,514", memory="27,514")
    assert said_there in text(follow("en")) and said_there not in text(follow("en", batch="2"))


@pytest.mark.parametrize("slug", list(models()))
@pytest.mark.parametrize("more", [{}, {"batch": "8", "weight_dtype": "int4", "kv_dtype": "fp8"}])
def test_the_factors_multiply_to_how_far_the_crossings_lie_apart(slug: str, more: dict[str, str]) -> None:
    made = core_says({"model": slug, **more})
    apart = parting(made)
    memory = first_context(made.shape, made.request, made.weight_bytes)
    if apart is not None and memory is not None:
        product = 1.0
        for _, value in apart:
            product *= value
        assert memory / attention_equals_2p(made.shape) == pytest.approx(product, rel=0.02)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guess_is_answered_by_core_and_blocks_nothing(language: str) -> None:
    session = follow(language)
    shape = shape_named(GUESS_MODEL)
    assert not session.exception and len(parts(session)) == 8
    equal, half = attention_equals_2p(shape), attention_is_half(shape)
    assert equal == 30_633 and half is not None
    for choice in CHOICES:
        session.radio(key="cost_guess_compute").set_value(choice).run()
        assert said(language, "guess_right" if choice == 30_000 else "guess_wrong") in text(session)
        assert count(equal) in text(session) and count(half) in text(session)


def test_a_dense_model_offers_one_with_experts() -> None:
    session = follow("en", model="llama-3.1-8b", n_layers="8")
    session.button(key="cost_to_moe").click().run()
    assert not session.exception
    check(session, core_says({"model": MOE_MODEL}), "en")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("link", [{"model": "smollm2", "batch": "3"}, {"model": "deepseek-v2-lite", "context": "777"}])
def test_counting_counts(language: str, link: dict[str, str]) -> None:
    session = follow(language, **link)
    session.button(key="cost_count").click().run()
    assert not session.exception
    made = core_says(link)
    counted = count_products(made.shape, n_tokens=made.request.context, batch=made.request.batch)
    for phase, exact in ((counted.decode, made.decode.flops_exact), (counted.prefill, made.prefill.flops_exact)):
        assert phase.flops_counted == exact and f"{count(exact)} FLOP  {count(exact)} FLOP  0 FLOP" in text(session)
    # Other dials, other counting: what was counted is no longer shown.
    session.session_state["cost_context"] = 99
    session.run()
    assert "0 FLOP  " not in text(session)


def test_what_cannot_be_counted_is_a_sentence() -> None:
    session = follow("en", model="llama-3.1-8b", context=str(2**27), batch=str(2**20))
    session.button(key="cost_count").click().run()
    said_why = sentence("estimate.count_too_large", "en", model="Llama-3.1-8B", n_tokens=2**27, batch=2**20)
    assert not session.exception and said_why in text(session)
    session = follow("zh", model="llama-3.1-8b", n_layers="1000")
    session.button(key="cost_count").click().run()
    said_why = sentence("estimate.count_too_many_layers", "zh", n_layers=1000, most=256)
    assert not session.exception and said_why in text(session)


def test_no_result_is_typed_into_the_words() -> None:
    """Digits in this page's words are those of formulas (2P, 4Lnd), of names and of places."""
    for language in LANGUAGES:
        keys = [
            key for key in words(language) if re.match(r"costs\.(crossings|gap|takeaway_compute|told|guess_comp)", key)
        ]
        digits = {number for key in keys for number in re.findall(r"\d+", words(language)[key])}
        assert len(keys) > 15 and digits <= {"2", "4"}
