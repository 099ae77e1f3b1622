"""Page 4's figures open to derivations that come to the same, in words of both languages."""

from __future__ import annotations

import re

import pytest

from core.estimate.catalogue import models
from core.estimate.derivation import Derivation
from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.plain import as_text
from core.estimate.query import asked
from core.estimate.where import where_derivations, where_json
from core.words import LANGUAGES, catalogue, sentence

CARDS = ("none", "h100-sxm", "a100-sxm-80gb", "rtx-4080", "t4", "custom")


def made(slug: str, card: str, **more: str) -> Estimate:
    return estimate(*asked({"model": slug, "accelerator": card, "batch": "3", **more}))


def figure(found: dict[str, dict[str, float | None]], name: str) -> float | None:
    group, own = name.split(".")
    return found[group][own]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("slug", list(models()))
def test_a_derivation_comes_to_its_figure(slug: str, card: str) -> None:
    one = made(slug, card)
    found, opened = where_json(one), where_derivations(one)
    for name, derivation in opened.items():
        shown = figure(found, name)
        assert shown is not None, name
        # Positions and requests are shown to the nearest.
        nearest = 0.5 + 1e-6 if isinstance(shown, int) else 0
        assert derivation.value == pytest.approx(shown, rel=1e-9, abs=nearest), name
    openable = {f"{group}.{name}" for group, own in found.items() for name, value in own.items() if value}
    closed = openable - set(opened)
    # Where all layers have windows that are full, nothing grows that a formula could divide.
    assert closed <= {"attention.roof"}, closed


@pytest.mark.parametrize("card", ["none", "rtx-4080"])
def test_without_a_peak_there_is_no_ridge(card: str) -> None:
    found = where_json(made("llama-3.1-8b", card))
    assert found["roof"]["ridge"] is None and found["scores"]["outweighs_at"] is None
    assert found["batching"]["limit"] is None and found["batching"]["ceiling"] is not None


def test_llama_on_an_h100() -> None:
    found = where_json(made("llama-3.1-8b", "h100-sxm", context="200"))
    assert found["batching"] == {
        "ceiling": pytest.approx(576.56),
        "limit_chapter": 421,
        "limit": 393,
        "limit_full": 315,
        "batch": 601,
    }
    assert found["attention"] == {"roof": 4} and found["scores"]["outweighs_at"] == 5772
    assert found["scores"]["table_bytes"] == 3 * 32 * 200**2 * 2


def test_a_card_without_room_has_a_limit_of_nothing() -> None:
    found = where_json(made("deepseek-v3", "h100-sxm"))
    assert found["batching"]["limit_full"] == 0 and found["batching"]["limit"] == 19_503


def test_names_do_not_meet_those_of_the_estimate() -> None:
    one = made("llama-3.1-8b", "h100-sxm")
    assert not set(where_json(one)) & set(estimate_json(one))


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_shown_has_words(language: str) -> None:
    known = catalogue(language)
    for slug in ("llama-3.1-8b", "gemma-3-12b", "deepseek-v3", "gpt-oss-20b"):
        for name, derivation in where_derivations(made(slug, "h100-sxm")).items():
            assert (
                f"derivations.figure_{name.replace('.', '_')}" in known
                and f"costs.card_{name.replace('.', '_')}" in known
            )
            assert f"derivations.source_{derivation.source}" in known
            _readable(derivation, language)


def _readable(derivation: Derivation, language: str) -> None:
    def word(key: str) -> str:
        return sentence(f"derivations.{key}", language)

    text = as_text(derivation, word)
    assert "\\" not in text and "{" not in text and "}" not in text, text
    latex = derivation.formula(word) + derivation.substituted()
    assert "ms}" not in latex, "none of these figures is a time"
    assert latex.count("{") == latex.count("}") and not re.search(r"\^\S*\^", latex.replace("^{*}", "")), latex
