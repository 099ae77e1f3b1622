"""The same weights give the same logits and the same tokens as in transformers, position by position, in fp32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.model.load import LanguageModel, load_model
from core.model.text.chat_template import Message
from tests.checkpoints import random_model, save_gguf
from tests.peer import (
    PASSAGE,
    greedy_of_peer,
    largest_difference,
    load_gguf,
    our_logits,
    peer_logits,
    random_ids,
    random_pair,
)

N_PROMPT = 200
N_GREEDY = 64
REAL_TOLERANCE = 1e-3
# Small models have small logits (a position wrong by one moves them by some 1e-3), so less is allowed.
SMALL_TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def smollm2_peer(smollm2_gguf: Path) -> PreTrainedModel:
    return load_gguf(smollm2_gguf)


@pytest.fixture(scope="module")
def endless(smollm2_f32: LanguageModel) -> LanguageModel:
    """The real model with no token ending its texts, so that a run is as long as it is asked to be."""
    return replace(smollm2_f32, end_token_ids=frozenset())


def greedy(model: LanguageModel, ids: list[int], n_new: int) -> list[int]:
    run = Run(model, ids, RunConfig(max_new=n_new))
    assert len(list(generate(model, run))) == n_new
    return run.output_ids


def assert_same_logits(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    assert largest_difference(ours, theirs) <= tolerance
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("cached", [False, True])
def test_smollm2_at_every_position_of_200(
    smollm2_peer: PreTrainedModel, smollm2_f32: LanguageModel, cached: bool
) -> None:
    ids = smollm2_f32.prompt_ids(PASSAGE, raw=True)[:N_PROMPT]
    assert len(ids) == N_PROMPT
    theirs = peer_logits(smollm2_peer, ids)
    assert theirs.argmax(-1).unique().numel() > N_PROMPT / 4  # a model that says something, not one token for ever
    assert_same_logits(our_logits(smollm2_f32, ids, cached=cached), theirs, REAL_TOLERANCE)


@pytest.mark.parametrize(
    ("system", "text", "raw"),
    [
        ("", "Why is the sky blue? Answer in three short paragraphs.", False),
        ("你是一位有耐心的老师。", "请用中文解释：为什么第一个字要等一会儿，后面的字却一个接一个地出来？", False),
        ("", "Once upon a time, in a village between two rivers,", True),
    ],
    ids=["en-chat", "zh-chat", "en-raw"],
)
def test_smollm2_writes_the_same_64_tokens(
    smollm2_peer: PreTrainedModel, endless: LanguageModel, system: str, text: str, raw: bool
) -> None:
    ids = endless.prompt_ids(text, raw=raw, history=[Message("system", system)] if system else ())
    produced = greedy(endless, ids, N_GREEDY)
    assert greedy_of_peer(smollm2_peer, ids, produced, endless.tokenizer.vocab_size) == produced


# Query heads, KV heads, head width at a hidden width of 32: n_kv = 1, between, = h, and h·d_h ≠ d both ways.
SHAPES = [(4, 1, 8), (4, 2, 8), (4, 4, 8), (4, 2, 16), (8, 2, 2), (2, 1, 20)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_small_models_of_every_shape(
    architecture: str, tied: bool, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    n_heads, n_kv_heads, head_dim = shape
    if architecture == "qwen2" and n_heads * head_dim != 32:
        n_heads, n_kv_heads, head_dim = 8, 2, 4  # qwen2 has no head width of its own
    peer, model = random_pair(
        architecture,
        tmp_path / "m",
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        tie_word_embeddings=tied,
        **({} if architecture == "qwen2" else {"head_dim": head_dim}),
    )
    assert (model.config.head_dim, model.config.n_kv_heads, model.config.tied_head) == (head_dim, n_kv_heads, tied)
    ids = random_ids(N_PROMPT)
    theirs = peer_logits(peer, ids)
    for cached in (False, True):
        assert_same_logits(our_logits(model, ids, cached=cached), theirs, SMALL_TOLERANCE)
    produced = greedy(model, ids[:17], N_GREEDY)
    assert greedy_of_peer(peer, ids[:17], produced, model.tokenizer.vocab_size) == produced


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_scaled_rotary_positions(architecture: str, kind: str, tmp_path: Path) -> None:
    rope = {"rope_theta": 10_000.0, **SCALINGS[kind]}
    peer, model = random_pair(architecture, tmp_path / "scaled", rope_parameters=rope)
    assert model.config.rope.scaling == kind
    ids = random_ids(N_PROMPT)
    theirs = peer_logits(peer, ids)
    assert_same_logits(our_logits(model, ids, cached=True), theirs, SMALL_TOLERANCE)
    _, unscaled = random_pair(architecture, tmp_path / "plain")
    # The same weights without the scaling are far off, so the line above would have noticed.
    assert largest_difference(our_logits(unscaled, ids), theirs) > 100 * SMALL_TOLERANCE


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_gguf_file_is_the_same_model(architecture: str, tied: bool, tmp_path: Path) -> None:
    """B14: q and k rows of a llama file are permuted, those of the others are not, and each is read as it is meant."""
    peer = random_model(architecture, tie_word_embeddings=tied)
    model = load_model(str(save_gguf(peer, tmp_path / "m.gguf")), device="cpu", dtype="f32")
    ids = random_ids(40)
    assert_same_logits(our_logits(model, ids), peer_logits(peer, ids), SMALL_TOLERANCE)
