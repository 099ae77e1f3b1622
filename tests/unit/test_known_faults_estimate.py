"""What other calculators got wrong, entry by entry: the smallest input that shows it, and the right value."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.configs.huggingface import from_hf
from core.estimate.dtypes import KvDtypes, WeightDtypes
from core.estimate.estimate import Request, estimate
from core.estimate.fit import capacity_bytes, fit
from core.estimate.flops import (
    chapter_params,
    decode_flops,
    weights_multiplied,
)
from core.estimate.kv import kv_bytes_per_token
from core.estimate.shape import Attention, ModelShape
from core.estimate.traffic import Pass, operators
from core.estimate.weights import parameters, weight_bytes, weights
from core.estimate.wrong import Wrong, wrong_formulas
from tests.unit.published import GB, GIB, LLAMA_3_70B, cache, dense, idle_layers, latent_only, mixed, per_token

# Entries of the list without a test here, and why.
LEFT_OUT = {
    "A16 (i)": "no figure of prompt tokens per second exists in core",
    "A18": "in tests/unit/test_device.py: the stopwatch waits for the device, and a CPU makes no device call",
}

ENTRIES = "A01 A02 A03 A04 A05 A06 A07 A08 A09 A10 A11 A12 A14 A16 A17 A18 A19 A27"
HERE = Path(__file__).parent

LLAMA_8B, LLAMA_7B, MIXTRAL = shape("llama-3.1-8b"), shape("llama-2-7b"), shape("mixtral-8x7b-v0.1")
BF16 = WeightDtypes()
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def mistakes(model: ModelShape, n_tokens: int = 1) -> dict[tuple[str, str], Wrong]:
    """The wrong formulas by name and quantity."""
    return {(wrong.name, wrong.quantity): wrong for wrong in wrong_formulas(model, n_tokens=n_tokens)}


def windows(model: ModelShape) -> list[tuple[int, int | None]]:
    """How many layers have which window."""
    return [(group.n_layers, group.attention.window) for group in model.groups if group.attention is not None]


def test_a01_the_cache_counts_kv_heads() -> None:
    assert per_token(LLAMA_8B) == 131_072 and per_token(LLAMA_7B) == 524_288
    assert cache(LLAMA_8B, 8192) == 1_073_741_824 == GIB
    assert mistakes(LLAMA_8B, 8192)["query_heads", "kv_bytes"].value == 4 * GIB


def test_a01_as_many_bytes_are_read() -> None:
    made = estimate(LLAMA_8B, Request(context=8192))
    assert made.decode.kv_read == GIB
    assert sum(one.kv_read for one in operators(LLAMA_8B, Pass(1, 8191))) == GIB


def test_a02_a_stated_head_dim_is_taken() -> None:
    model = shape("qwen3-4b")
    assert per_token(model) == 147_456
    assert mistakes(model)["width_over_heads", "kv_bytes"].value == 92_160
    (q_proj,) = [weight for weight in weights(model) if weight.name == "q_proj"]
    assert q_proj.size == 36 * 4096 * 2560 and q_proj.row == 2560
    assert parameters(model).total == 4_022_468_096


def test_a02_without_one_it_is_the_width_over_the_heads_and_that_is_said() -> None:
    absent = {name: value for name, value in CONFIG.items() if name != "head_dim"} | {"hidden_size": 2560}
    model = from_hf(absent, name="silent")
    (group,) = model.groups
    assert isinstance(group.attention, Attention) and group.attention.head_dim == 80
    assert [note.key for note in model.notes] == ["estimate.note_head_dim"]
    assert "80" in model.notes[0].sentence("en") and "80" in model.notes[0].sentence("zh")
    assert from_hf(CONFIG, name="stated").notes == ()


def test_a03_key_value_heads_are_a_number_of_heads() -> None:
    model = from_hf(CONFIG, name="one layer")
    attention = model.groups[0].attention
    assert isinstance(attention, Attention) and attention.n_kv_heads == 8
    assert attention.n_heads // attention.n_kv_heads == 4 and per_token(model) == 4096


def test_a04_bytes_meet_bytes() -> None:
    weight = weight_bytes(LLAMA_8B, BF16)
    assert weight == 16_060_522_496
    assert (round(weight / GB, 2), round(weight / GIB, 2)) == (16.06, 14.96)
    assert mistakes(LLAMA_8B)["gib_called_gb", "weight_bytes"].value == pytest.approx(14.957 * GB, rel=1e-4)


@pytest.mark.parametrize(("needed", "fits"), [(83 * GB, True), (80 * GIB, True), (80 * GIB + 2, False)])
def test_a04_a_card_of_80_gib(needed: int, fits: bool) -> None:
    """83e9 bytes are 77.30 GiB."""
    model = replace(mixed(idle_layers(1), d=1, V=needed // 2), tied_head=True)
    capacity = capacity_bytes(accelerator_named("h100-sxm"), 1.0)
    found = fit(model, capacity=capacity, n_tokens=1, batch=1, weight_dtypes=BF16, kv_dtypes=KvDtypes())
    assert (found.needed_bytes, found.fits) == (needed, fits)
    assert capacity == 80 * GIB and round(83 * GB / GIB, 2) == 77.30


@pytest.mark.parametrize(
    ("model", "once", "twice"),
    [
        (dense(6, 288, 6, 6, 768, 32000, head_dim=48, tied=True), 15_191_712, 24_407_712),
        (shape("gpt2"), 124_439_808, 163_037_184),
    ],
    ids=["stories15M", "gpt2"],
)
def test_a07_a_tied_table_is_counted_once(model: ModelShape, once: int, twice: int) -> None:
    assert parameters(model).total == once
    assert weight_bytes(model, BF16) == 2 * once
    assert mistakes(model)["tied_head_twice", "weight_bytes"].value == 2 * twice


@pytest.mark.parametrize(
    ("dtype", "gib", "rate", "log"),
    [("f16", 4, 131_072, 360), ("q8_0", 2.125, 69_632, 191.25), ("q4_0", 1.125, 36_864, 101.25)],
)
def test_a09_blocks_have_scales(dtype: str, gib: float, rate: int, log: float) -> None:
    assert per_token(LLAMA_8B, dtype) == rate and cache(LLAMA_8B, 32_768, dtype) == gib * GIB
    assert cache(LLAMA_8B, 2880, dtype) == log * 2**20


def test_a10_all_experts_are_in_memory_and_few_compute() -> None:
    assert parameters(MIXTRAL).total == parameters(MIXTRAL).resident == 46_702_792_704
    assert weight_bytes(MIXTRAL, BF16) == 93_405_585_408
    assert chapter_params(MIXTRAL) == 12_879_925_248
    assert sum(weights_multiplied(MIXTRAL)) == 12_748_587_008
    assert decode_flops(MIXTRAL, 0) == 2 * 12_748_587_008
    eight_times = mistakes(MIXTRAL)["experts_times_model", "weight_bytes"]
    assert eight_times.value / 2 == pytest.approx(8 * 7.24e9, rel=1e-3) and eight_times.factor > 1.2
    assert mistakes(MIXTRAL)["active_for_total", "weight_bytes"].value == 2 * 12_748_853_248


def test_a11_a_latent_is_kept_once_with_its_rotary_part() -> None:
    assert per_token(latent_only(61)) == per_token(shape("deepseek-v3")) == 70_272
    assert cache(shape("deepseek-v3"), 32_768) == 2_302_672_896
    wrong = mistakes(shape("deepseek-v3"))
    names = {"latent_twice": 124_928, "latent_without_rope": 62_464, "width_over_heads": 1_748_992}
    assert {name: wrong[name, "kv_bytes"].value for name in names} == names


def test_a12_a_window_bounds_the_cache() -> None:
    model = shape("mistral-7b-v0.1")
    full = replace(model, groups=LLAMA_8B.groups)
    assert (cache(model, 32_768), cache(full, 32_768)) == (GIB // 2, 4 * GIB)
    assert cache(model, 4096) == cache(full, 4096) == cache(model, 4097) == cache(full, 4097) - 131_072
    assert kv_bytes_per_token(model) is None
    assert mistakes(model, 32_768)["window_forgotten", "kv_bytes"].value == 4 * GIB


def test_a14_a_window_may_be_switched_off_or_begin_later() -> None:
    qwen2 = CONFIG | {"model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 4096}
    off = from_hf(qwen2 | {"use_sliding_window": False}, name="off")
    assert windows(off) == [(4, None)] and "estimate.note_window_off" in [note.key for note in off.notes]
    later = from_hf(qwen2 | {"use_sliding_window": True, "max_window_layers": 2}, name="later")
    assert windows(later) == [(2, None), (2, 4096)]
    assert cache(later, 5000) == 2 * 4096 * (5000 + 4096)


@pytest.mark.parametrize(("ranks", "gib"), [(1, 2.5), (4, 0.625), (8, 0.3125), (16, 0.3125)])
def test_a27_heads_are_split_and_then_copied(ranks: int, gib: float) -> None:
    assert cache(LLAMA_3_70B, 8192, ranks=ranks) == gib * GIB
    assert cache(shape("deepseek-v3"), 8192, ranks=ranks) == 8192 * 70_272


def test_every_entry_has_its_test() -> None:
    files = [HERE / "test_known_faults_estimate.py", HERE / "test_known_faults_compute.py"]
    tested = {
        f"A{number}" for file in files for number in re.findall(r"^def test_a(\d\d)_", file.read_text("utf-8"), re.M)
    }
    assert tested | {name[:3] for name in LEFT_OUT} == set(ENTRIES.split())
