"""What is asked in an address: read like the command's flags, refused by the word's name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.estimate import catalogue
from core.estimate.estimate import Request, estimate, estimate_json
from core.estimate.query import SHAPE, asked
from core.estimate.shape import Attention
from core.estimate.weights import parameters
from core.refusal import Refusal
from core.words import LANGUAGES

OWN = {
    "n_layers": "36",
    "n_heads": "32",
    "n_kv_heads": "32",
    "head_dim": "128",
    "d_model": "4096",
    "d_ff": "12288",
    "vocab_size": "32000",
}


def figures(**words: str) -> dict[str, Any]:
    return estimate_json(estimate(*asked(words)))


def test_the_defaults_are_the_commands() -> None:
    shape, request = asked({"model": "qwen3-8b"})
    assert shape == catalogue.shape("qwen3-8b") and request == Request()


def test_a_shape_of_ones_own_is_the_chapters_model() -> None:
    own, named = figures(**OWN, context="100"), figures(model="chapter-8b", context="100")
    assert own["params"]["total"] == parameters(catalogue.shape("chapter-8b")).total
    assert {k: v for k, v in own.items() if k != "model"} == {k: v for k, v in named.items() if k != "model"}


def test_a_model_with_some_numbers_changed() -> None:
    shape, _ = asked({"model": "qwen3-8b", "n_kv_heads": "4", "n_layers": "10"})
    (group,), (before,) = shape.groups, catalogue.shape("qwen3-8b").groups
    assert isinstance(before.attention, Attention)
    assert group == replace(before, n_layers=10, attention=replace(before.attention, n_kv_heads=4))
    assert figures(model="qwen3-8b", n_kv_heads="4")["kv_bytes_per_token"] == 147_456 // 2
    whole = {name: str(figures(model="qwen3-8b")["model"].get(name)) for name in ("n_layers", "n_heads", "n_kv_heads")}
    assert figures(model="qwen3-8b", **whole) == figures(model="qwen3-8b")
    wide, _ = asked({"model": "llama-3.1-8b", "d_model": "2048", "d_ff": "1000", "vocab_size": "100"})
    assert parameters(wide).total == 2 * 100 * 2048 + 2048 * 65 + 32 * 2048 * (2 * 4096 + 2 * 1024 + 3 * 1000)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({}, "catalogue"),
        ({"model": "nope"}, "nope"),
        ({"model": "qwen3-8b", "batchs": "1"}, "batchs"),
        ({"model": "qwen3-8b", "batch": ""}, "batch"),
        ({"model": "qwen3-8b", "batch": "-1"}, "batch"),
        ({"model": "qwen3-8b", "context": "1e9"}, "context"),
        ({"model": "qwen3-8b", "context": "9" * 12}, "context"),
        ({"model": "qwen3-8b", "context": "٣"}, "context"),
        ({"model": "qwen3-8b", "tp": "0"}, "tp"),
        ({"model": "qwen3-8b", "memory_fraction": "nan"}, "memory_fraction"),
        ({"model": "qwen3-8b", "memory_fraction": "inf"}, "memory_fraction"),
        ({"model": "qwen3-8b", "n_kv_heads": "3"}, "KV"),
        ({"model": "qwen3-8b", "n_layers": "5000"}, "n_layers"),
        ({"model": "qwen3-8b", "kv_dtype": "q9"}, "q9"),
        ({"model": "qwen3-8b", "accelerator": "abacus"}, "abacus"),
        ({"model": "gemma-2-9b", "n_layers": "3"}, "n_layers"),
        ({"model": "deepseek-v3", "n_kv_heads": "3"}, "n_kv_heads"),
        ({name: value for name, value in OWN.items() if name != "d_ff"}, "d_ff"),
        ({**OWN, "n_kv_heads": "5"}, "KV"),
    ],
)
def test_a_refusal_names_the_word_in_both_languages(words: dict[str, str], named: str) -> None:
    with pytest.raises(Refusal) as refused:
        asked(words)
    for language in LANGUAGES:
        assert named in refused.value.sentence(language) or named == "catalogue"
        assert "\n" not in refused.value.sentence(language)


def test_all_numbers_of_a_shape_are_bounded() -> None:
    for name, most in SHAPE.items():
        for value in ("0", str(most + 1), "x"):
            with pytest.raises(Refusal):
                asked({**OWN, name: value})
