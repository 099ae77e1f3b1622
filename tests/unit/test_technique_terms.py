"""The matrix's terms: what each technique leaves alone is exactly the same, and what it changes has the right size."""

from __future__ import annotations

import pytest

from core.estimate.catalogue import models, shape
from core.estimate.flops import prefill_flops
from core.estimate.kv import kv_bytes
from core.estimate.weights import weight_bytes
from core.questions.technique_terms import (
    BATCH,
    N_PROMPT,
    TECHNIQUES,
    TERMS,
    Mark,
    Setup,
    amounts,
    can_be_asked,
    changes,
    with_technique,
)
from core.questions.techniques import LONG_THOUGHT, SHORT_ANSWER

ASKED = [slug for slug in models() if can_be_asked(shape(slug))]
# The terms a technique changes, whatever the model.
CHANGED = {
    "sampling": {"rule"},
    "weights": {"weights", "read", "resident"},
    "cache": {"cache", "read", "resident"},
    "draft": {"flops", "read", "steps"},
    "thought": {"cache", "flops", "read", "steps", "resident"},
    "heads": {"weights", "cache", "flops", "read", "prefill", "resident"},
    "surgery": {"cache", "flops", "read", "resident"},
    "batching": {"read", "resident"},
    "chunks": {"steps"},
    "prefix": {"prefill"},
}


@pytest.mark.parametrize("slug", ASKED)
@pytest.mark.parametrize("name", CHANGED)
def test_a_technique_changes_its_own_terms_alone(slug: str, name: str) -> None:
    found = changes(name, shape(slug))
    assert tuple(found) == TERMS
    changed = {term for term, change in found.items() if change.mark not in (Mark.SAME, Mark.MEASURE)}
    assert changed == CHANGED[name]


def test_all_techniques_are_tested_and_exactness_is_not_guessed() -> None:
    assert set(TECHNIQUES) == {*CHANGED, "experts"}
    found = {name: changes(name, shape("llama-3.1-8b"))["quality"].mark for name in TECHNIQUES}
    assert {name for name, mark in found.items() if mark is Mark.SAME} == {"draft", "batching", "chunks", "prefix"}


def test_the_sizes_of_llama() -> None:
    model = shape("llama-3.1-8b")
    n = N_PROMPT + SHORT_ANSWER
    plain = amounts(Setup(shape=model))
    assert plain.cache == 2 * 32 * 8 * 128 * 2 * n and plain.weights == 2 * 8_030_261_248
    assert plain.resident == plain.weights + plain.cache and plain.steps == SHORT_ANSWER
    assert plain.prefill == prefill_flops(model, N_PROMPT, causal=True)
    assert changes("heads", model)["cache"].ratio == 1 / 4
    assert changes("thought", model)["steps"].ratio == LONG_THOUGHT / SHORT_ANSWER
    assert changes("weights", model)["weights"].ratio == 1 / 4
    assert changes("surgery", model)["cache"].ratio == 1 / 2
    series = 1 + 0.7 + 0.7**2 + 0.7**3 + 0.7**4
    draft = changes("draft", model)
    assert draft["read"].ratio == pytest.approx(1 / series)
    assert draft["flops"].ratio == pytest.approx(5 / series)
    batch = changes("batching", model)["resident"]
    assert batch.after - batch.before == (BATCH - 1) * kv_bytes(model, n_tokens=n)


def test_experts_of_a_mixture_and_of_a_dense_model() -> None:
    mixture = changes("experts", shape("qwen3-30b-a3b"))
    assert mixture["weights"].mark is Mark.SAME and mixture["flops"].ratio < 1 / 4
    before, after = with_technique("experts", shape("llama-3.1-8b"))
    router = 2 * 32 * 4096 * 8
    assert weight_bytes(after.shape, after.weight_dtypes) - weight_bytes(before.shape, before.weight_dtypes) == router


def test_a_draft_of_a_mixture_reads_more_experts() -> None:
    """γ + 1 positions meet more experts than one: the reading that a draft saves is spent again."""
    assert changes("draft", shape("qwen3-30b-a3b"))["read"].mark is Mark.UP
    assert changes("draft", shape("qwen3-8b"))["read"].mark is Mark.DOWN


def test_models_without_room_for_a_long_thought_are_not_asked() -> None:
    assert "gpt2" not in ASKED and "llama-3.1-8b" in ASKED and "qwen3-30b-a3b" in ASKED
