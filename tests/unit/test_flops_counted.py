"""Exact FLOP against torch's own counter on plain products and the mathematical attention path.

Fused CPU kernels hide from the counter (it reads 0 for them), so the models here are built with plain products and
attention is kept on the path that consists of matrix products.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from core.engine.run import Run, RunConfig
from core.engine.steps import decode_one_token, prefill, recompute_one_token
from core.estimate.catalogue import shape as shape_named
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.flops import (
    attended_pairs,
    decode_flops,
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_flops_chapter,
)
from core.estimate.kv import kv_bytes
from core.estimate.shape import shape_of
from core.estimate.weights import parameters, weight_bytes_read
from core.model.config import ModelConfig
from core.model.files.checkpoint import open_checkpoint
from core.model.load import TINY_FOLDER, LanguageModel
from core.model.transformer import Transformer
from tests.checkpoints import random_model
from tests.peer import random_ids


def plain_model(architecture: str, **changes: Any) -> Transformer:
    """A small model whose every product the counter sees."""
    peer = random_model(architecture, **changes)
    settings = peer.config
    config = ModelConfig(
        name="counted",
        architecture=architecture,
        n_layers=settings.num_hidden_layers,
        d_model=settings.hidden_size,
        n_heads=settings.num_attention_heads,
        n_kv_heads=settings.num_key_value_heads,
        head_dim=getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads,
        d_ff=settings.intermediate_size,
        vocab_size=settings.vocab_size,
        context_limit=settings.max_position_embeddings,
        tied_head=settings.tie_word_embeddings,
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
    )
    return Transformer(config, peer.state_dict().__getitem__, packed=False)


def counted(model: Transformer, *passes: list[int]) -> tuple[list[int], int]:
    """FLOP the counter sees in the layers for each pass behind the ones before, and in the head for one position."""
    cache, flops = model.new_cache(), []
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        for ids in passes:
            with FlopCounterMode(display=False) as counter:
                hidden = model.hidden(torch.tensor([ids]), [cache])
            flops.append(counter.get_total_flops())
        with FlopCounterMode(display=False) as counter:
            model.logits(hidden[:, -1])
    return flops, counter.get_total_flops()


SHAPES: dict[str, dict[str, Any]] = {
    "multi-head": {"num_key_value_heads": 4},
    "grouped": {"num_key_value_heads": 2},
    "one KV head": {"num_key_value_heads": 1},
    "wide heads": {"num_key_value_heads": 2, "head_dim": 20},
    "narrow heads": {"num_key_value_heads": 1, "head_dim": 4},
    "three layers": {"num_hidden_layers": 3, "intermediate_size": 100},
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_prefill_and_decode_equal_the_counter(architecture: str, shape: str, tied: bool) -> None:
    changes = dict(SHAPES[shape])
    if architecture == "qwen2":
        changes.pop("head_dim", None)
    model = plain_model(architecture, tie_word_embeddings=tied, **changes)
    ids = random_ids(30)
    flops, head = counted(model, ids[:17], ids[17:18], ids[18:19], ids[19:30])
    sizes, pasts = (17, 1, 1, 11), (0, 17, 18, 19)
    shape = shape_of(model.config)
    assert flops == [layers_flops(shape, new, past) for new, past in zip(sizes, pasts, strict=True)]
    assert head == head_flops(shape) == 2 * 288 * 32
    assert min(flops) > 0


def test_several_rows_through_the_head() -> None:
    model = plain_model("llama")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(torch.zeros(1, 5, 32))
    assert counter.get_total_flops() == head_flops(shape_of(model.config), 5)


def test_what_the_record_says_equals_the_counter(tiny_f32: LanguageModel) -> None:
    """The whole step of the engine, sampling and all, under the counter."""
    checkpoint = open_checkpoint(TINY_FOLDER)
    model = replace(tiny_f32, transformer=Transformer(checkpoint.config, checkpoint.tensor, packed=False))
    checkpoint.close()
    cached = Run(model, random_ids(13), RunConfig(max_new=9))
    chunked = Run(model, random_ids(13), RunConfig(max_new=9, prefill_chunk=5))
    without = Run(model, random_ids(13), RunConfig(max_new=9, use_cache=False))
    for advance, run in (
        (prefill, cached),
        (prefill, chunked),
        (decode_one_token, cached),
        (decode_one_token, cached),
        (recompute_one_token, without),
        (recompute_one_token, without),
    ):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            (event,) = advance(model, [run])
        assert event.flops_exact == counter.get_total_flops()


CHAPTER_CONFIG = ModelConfig(
    name="chapter-8b",
    architecture="llama",
    n_layers=36,
    d_model=4096,
    n_heads=32,
    n_kv_heads=32,
    head_dim=128,
    d_ff=12_288,
    vocab_size=32_000,
    context_limit=32_768,
)
CHAPTER = shape_of(CHAPTER_CONFIG)


def test_the_chapters_formulas_with_its_own_numbers() -> None:
    total = parameters(CHAPTER).total
    assert total == 36 * (4 * 4096**2 + 3 * 4096 * 12_288 + 2 * 4096) + 4096 + 2 * 32_000 * 4096
    assert round(total / 1e9, 2) == 8.11
    assert decode_flops_chapter(CHAPTER, 1024) == 2 * total + 4 * 36 * 1024 * 4096
    assert prefill_flops_chapter(CHAPTER, 1024) == 2 * 1024 * total + 4 * 36 * 1024**2 * 4096
    # "四百多 KB" a token by its text; by its formula 576 KiB.
    assert kv_bytes(CHAPTER, n_tokens=1) == 589_824
    assert kv_bytes(CHAPTER, n_tokens=100, batch=3) == 300 * 589_824


def test_the_chapters_d_is_the_hidden_width() -> None:
    """Also where the queries together are wider (Qwen3-32B: 8192 against 5120); the exact count takes what there is."""
    wide = shape_of(replace(CHAPTER_CONFIG, d_model=5120, n_heads=64, n_kv_heads=8))
    total = parameters(wide).total
    assert decode_flops_chapter(wide, 7) == 2 * total + 4 * 36 * 7 * 5120
    assert prefill_flops_chapter(wide, 7) == 2 * 7 * total + 4 * 36 * 7**2 * 5120
    assert decode_flops(wide, 8) - decode_flops(wide, 7) == 4 * 36 * 8192


def test_qwen3_8b_as_the_design_counts_it() -> None:
    """15.74 GFLOP exact against the chapter's 16.99 (+7.9%) for the 1025th token."""
    shape = shape_named("qwen3-8b")
    exact, chapter = decode_flops(shape, 1025), decode_flops_chapter(shape, 1025)
    assert (round(exact / 1e9, 2), round(chapter / 1e9, 2)) == (15.74, 16.99)
    assert round(100 * (chapter / exact - 1), 1) == 7.9


def test_smollm2_is_what_it_is_known_to_be(smollm2_f32: LanguageModel) -> None:
    shape = smollm2_f32.shape
    assert parameters(shape).total == parameters(shape).active == 134_515_008
    assert decode_flops_chapter(shape, 100) == 2 * 134_515_008 + 4 * 30 * 100 * 576
    # All that multiplies is the layers' matrices, and the table as head: the 61 norms do not, the look-up does not.
    multiplying = 134_515_008 - 61 * 576
    assert decode_flops(shape, 100) == 2 * multiplying + 4 * 30 * 100 * 576
    assert smollm2_f32.transformer.product_bytes == 4 * multiplying
    assert weight_bytes_read(shape, WeightDtypes(DTYPES["f32"]), 1) == smollm2_f32.transformer.product_bytes


def test_the_live_model_is_the_one_in_the_catalogue(smollm2_f32: LanguageModel) -> None:
    catalogued = shape_named("smollm2")
    assert smollm2_f32.shape.groups == catalogued.groups
    assert smollm2_f32.shape.tied_head and catalogued.tied_head
    assert parameters(smollm2_f32.shape) == parameters(catalogued)


def test_active_parameters_leave_an_untied_table_out() -> None:
    assert parameters(CHAPTER).active == parameters(CHAPTER).total - 32_000 * 4096


@pytest.mark.parametrize("n_new", [1, 2, 9])
@pytest.mark.parametrize("n_past", [0, 1, 20])
def test_pairs_are_counted_one_by_one(n_new: int, n_past: int) -> None:
    assert attended_pairs(n_new, n_past) == sum(n_past + i + 1 for i in range(n_new))


def test_parameters_are_those_of_transformers() -> None:
    for architecture in ("llama", "qwen2", "qwen3"):
        for tied in (True, False):
            model = plain_model(architecture, tie_word_embeddings=tied)
            peer = random_model(architecture, tie_word_embeddings=tied)
            assert parameters(shape_of(model.config)).total == sum(p.numel() for p in peer.parameters())
