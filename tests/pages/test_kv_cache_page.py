"""Page 2: what Python shows is core's, in both languages and units; the guess, the exercise, the tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.catalogue import models
from core.estimate.estimate import estimate, estimate_json
from core.estimate.kv import kv_bytes
from core.estimate.query import asked
from core.words import LANGUAGES, sentence
from pages.shared import kv_wrong, numbers
from pages.shared.kv_story import PAGE_SIZES
from tests.pages.screen import html, parts, text

OpenPage = Callable[..., AppTest]
PAGE = "2_kv_cache.py"


def words_of(session: AppTest) -> dict[str, str]:
    found: dict[str, str] = parts(session)["dials"]["feed"]["words"]
    return found


def chosen(session: AppTest, **state: Any) -> AppTest:
    if "model" in state:
        session.selectbox(key="cost_model").set_value(state.pop("model")).run()
    for name, value in state.items():
        session.session_state[f"cost_{name}"] = value
    session.run()
    assert not session.exception
    return session


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_what_core_says(open_page: OpenPage, language: str) -> None:
    session = chosen(open_page(language, PAGE), accelerator="h100-sxm", batch=3, context=5000)
    made = estimate(*asked(words_of(session)))
    shown = parts(session)
    assert {"dials", "cards", "block", "kv_against_context", "kv_against_batch", "kv_kinds"} <= set(shown)
    assert shown["cards"]["estimate"] == shown["block"]["estimate"] == json.loads(json.dumps(estimate_json(made)))
    assert shown["cards"]["formulas"]["kv_bytes"]["values"] == "2·3·36·32·5,000·128·2"
    assert sentence("pages.question_kv_cache", language) in text(session)
    for part in shown.values():
        assert part["language"] == language


@pytest.mark.parametrize("slug", list(models()))
def test_every_model_can_be_chosen(open_page: OpenPage, slug: str) -> None:
    session = chosen(open_page("en", PAGE), model=slug, accelerator="mi300x", batch=7, context=9001)
    words = words_of(session)
    assert words["model"] == slug and not set(words) & {"n_layers", "n_heads", "n_kv_heads", "head_dim"}
    assert parts(session)["cards"]["estimate"]["kv_bytes"] == estimate(*asked(words)).kv_bytes
    size = PAGE_SIZES[0]
    reserved = kv_bytes(estimate(*asked(words)).shape, n_tokens=9001, batch=7, page_tokens=size)
    assert numbers.scaled_bytes(reserved, "binary") in text(session)


def test_a_changed_dial_is_asked_and_linked(open_page: OpenPage) -> None:
    session = chosen(open_page("en", PAGE), n_kv_heads=8)
    assert words_of(session)["n_kv_heads"] == "8"
    assert session.query_params["n_kv_heads"] in ("8", ["8"])
    assert parts(session)["cards"]["estimate"]["kv_bytes_per_token"] == 589_824 // 4
    session.selectbox(key="cost_model").set_value("llama-3.1-8b").run()
    assert "n_kv_heads" not in words_of(session) and session.session_state["cost_n_layers"] == 32


def test_the_units_switch_changes_all_numbers_together(open_page: OpenPage) -> None:
    session = chosen(open_page("en", PAGE), accelerator="h100-sxm")
    binary = text(session)
    session.session_state["units"] = "decimal"
    session.run()
    decimal = text(session)
    said = sentence("costs.finding_token", "en", bytes="589,824", binary="576.0 KiB", decimal="589.8 kB")
    assert said in binary and said in decimal  # this one names both
    assert not re.search(r"\d [KMGT]iB", decimal.replace(said, "")) and re.search(r"\d [GM]B", decimal)
    assert not re.search(r"\d [kMGT]B", binary.replace(said, "")) and re.search(r"\d [GM]iB", binary)
    axis = parts(session)["kv_against_context"]["figure"]["layout"]["yaxis"]["title"]["text"]
    assert "GB" in axis and "GiB" not in axis


def test_the_chapters_findings_stand_beside_its_own_model_alone(open_page: OpenPage) -> None:
    session = open_page("zh", PAGE)
    shown = text(session)
    assert "589,824 B" in shown and "11.0 GiB" in shown and "27.5 GiB" in shown
    assert sentence("costs.finding_n", "zh") in shown
    assert sentence("costs.finding_n", "zh") not in text(chosen(session, n_kv_heads=8))
    assert sentence("costs.finding_n", "zh") not in text(chosen(session, model="qwen3-8b", n_kv_heads=8))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guess(open_page: OpenPage, language: str) -> None:
    session = open_page(language, PAGE)
    for value, verdict in ((294_912, "guess_wrong"), (589_824, "guess_right")):
        session.radio(key="cost_guess_kv").set_value(value).run()
        assert sentence(f"costs.{verdict}", language) in text(session)
        assert "2 · 1 · 36 · 32 · 1 · 128 · 2 = 589,824 B" in text(session)


def test_the_wrong_formulas_are_wrong_by_what_they_say(open_page: OpenPage) -> None:
    session = chosen(open_page("en", PAGE), model="llama-3.1-8b", batch=2)
    made = estimate(*asked(words_of(session)))
    shown = text(session)
    listed = kv_wrong.mistakes(made)
    assert len(listed) >= 6
    for wrong in listed:
        assert sentence(f"costs.wrong_{wrong.name}", "en") in shown
        assert numbers.scaled_bytes(round(wrong.value), "binary") in shown and wrong.value != made.kv_bytes
    assert "4× too large" in shown and "2× too small" in shown


def test_in_the_exercise_one_number_is_wrong(open_page: OpenPage) -> None:
    session = chosen(open_page("en", PAGE), model="llama-3.1-8b")
    made = estimate(*asked(words_of(session)))
    right = {made.kv_bytes, made.weight_bytes, made.kv_bytes + made.weight_bytes}
    for _ in range(6):
        (spot,) = [radio for radio in session.radio if radio.key.startswith("cost_spot_")]
        written = [re.search(r"[\d.]+ \w+iB", option)[0] for option in spot.options]  # type: ignore[index]
        amounts = {numbers.scaled_bytes(value, "binary") for value in right}
        false = [at for at, amount in enumerate(written) if amount not in amounts]
        assert len(written) == 3 and len(false) == 1
        spot.set_value(false[0]).run()
        assert f"Right, number {false[0] + 1} is wrong" in text(session)
        session.button(key="cost_spot_again").click().run()


@pytest.mark.parametrize("slug", ["chapter-8b", "gpt-oss-20b", "deepseek-v3"])
def test_a_cache_is_really_allocated(open_page: OpenPage, slug: str) -> None:
    session = chosen(open_page("en", PAGE), model=slug, batch=2, context=300, kv_dtype="q8_0")
    session.button(key="cost_allocate").click().run()
    assert not session.exception
    rows = re.findall(r"<td>([^<]*)</td><td>([^<]*)</td>", html(session))
    found = dict(rows)
    assert found["Gap"] == "0 B" and found["By the formula"].endswith(" B")
    made = estimate(*asked(words_of(session)))
    n = int(re.search(r"n = ([\d,]+)", found["Allocated"])[1].replace(",", ""))  # type: ignore[index]
    expected = kv_bytes(made.shape, n_tokens=n, batch=2, dtypes=made.request.kv_dtypes)
    assert found["By the formula"] == f"{expected:,} B" and 0 < expected <= 96 * 2**20


def test_what_cannot_be_allocated_is_refused(open_page: OpenPage) -> None:
    session = chosen(open_page("zh", PAGE), batch=1_000_000)
    session.button(key="cost_allocate").click().run()
    assert sentence("estimate.allocation_too_large", "zh", batch=1_000_000, most=96) in text(session)
