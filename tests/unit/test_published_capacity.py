"""Published capacities: what servers logged of their pools (E), and worked step times and thresholds (J)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from core.estimate.accelerators import Accelerator, accelerator_named
from core.estimate.catalogue import shape
from core.estimate.dtypes import DTYPES, WeightDtypes, kv_dtypes
from core.estimate.fit import capacity_bytes, fit, max_batch
from core.estimate.floors import Floor, critical_batch, floor
from core.estimate.shape import ModelShape
from core.estimate.traffic import Pass, operators
from core.estimate.weights import weight_bytes
from tests.unit.published import (
    GB,
    GIB,
    LLAMA_2_13B,
    LLAMA_3_70B,
    Case,
    both_negative,
    cache,
    cache_layers,
    cache_only,
    case_id,
    check_ids,
    dense,
    device,
    exact,
    idle_layers,
    keys,
    latent_only,
    mixed,
    per_token,
    percent,
    pool_tokens,
    rounded,
    units,
    values,
)

IDS = """
    E01 E03 E05 E07 E09 E11 E13 E15 E17 E19 E21 E23 E25 E27 E29 E31 E33 E35 E37 E39
    J02 J04 J06 J08 J10 J12 J14 J16 J18
"""
BF16, INT8 = DTYPES["bf16"], DTYPES["int8"]
QWEN2_5_1_5B, QWEN2_5_3B = cache_only(28, 2, 128), cache_only(36, 2, 128)
MINISTRAL_14B, QWEN3_235B = cache_only(40, 8, 128), cache_only(94, 4, 128)
QWEN3_6_27B = mixed(cache_layers(16, 4, 256), idle_layers(48))


def logged(
    id: str,
    model: ModelShape,
    pool_gib: float,
    tokens: int,
    most_apart: float,
    times: tuple[float, int] | None = None,
    ranks: int = 1,
) -> list[Case]:
    """A server's two lines: the tokens in its pool, and how many requests of the longest length these are."""
    lines = [Case(id, tokens, 1, units(most_apart), lambda: pool_tokens(model, pool_gib, ranks=ranks, page=16))]
    if times is not None:
        published, length = times
        agrees = units(most_apart / length + 0.005)
        lines.append(Case(id, published, length, agrees, lambda: pool_tokens(model, pool_gib, ranks=ranks, page=16)))
    return lines


def left_of(memory_gib: float, fraction: float, *taken_gib: float) -> float:
    """Bytes that a server has for its cache beside what else it needs."""
    return capacity_bytes(device(memory=memory_gib * GIB), fraction) - sum(taken_gib) * GIB


LLAMA_8B = shape("llama-3.1-8b")
E = [
    *logged("E01", LLAMA_8B, 3.81, 31_232, 56, (1.56, 20_000)),
    *logged("E03", LLAMA_8B, 19.92, 163_168, 56),
    *logged("E05", shape("qwen2.5-7b"), 8.0, 149_712, 109, (4.57, 32_768)),
    *logged("E07", QWEN2_5_1_5B, 15.85, 593_424, 203, (72.44, 8192)),
    Case("E09", 1.1, GIB, rounded(1), lambda: cache(QWEN2_5_3B, 32_000)),
    *logged("E11", MINISTRAL_14B, 52.36, 686_320, 81, (6.86, 100_000), ranks=2),
    *logged("E13", shape("qwen3-30b-a3b"), 19.4, 211_936, 70, (25.87, 8192)),
    *logged("E15", shape("qwen3-30b-a3b"), 23.74, 1_037_152, 234, (31.65, 32_768), ranks=4),
    *logged("E17", QWEN3_235B, 8.11, 178_880, 178_880 * 0.015, ranks=4),
    Case("E19", 76.44, GIB, rounded(2), lambda: keys(shape("qwen3-30b-a3b"), 1_669_816, "bf16")),
    Case("E19", 76.44, GIB, rounded(2), lambda: values(shape("qwen3-30b-a3b"), 1_669_816, "bf16")),
    Case("E21", 160.63, GIB, rounded(2), lambda: cache(latent_only(61), 2_454_421, ranks=8)),
    Case("E23", 4.58, GIB, rounded(2), lambda: keys(QWEN3_6_27B, 600_075, "fp8", ranks=2)),
    Case("E23", 4.58, GIB, rounded(2), lambda: values(QWEN3_6_27B, 600_075, "fp8", ranks=2)),
    Case("E25", 24, GIB, exact, lambda: cache(shape("qwen3-30b-a3b"), 262_144)),
    *logged("E25", shape("qwen3-30b-a3b"), 3.18, 34_736, 70),
    Case("E27", 16, GIB, exact, lambda: cache(LLAMA_8B, 131_072)),
    Case("E27", 5632, 1, percent(4), lambda: pool_tokens(LLAMA_8B, 0.71)),
    Case("E29", 5.62, GIB, rounded(2), lambda: cache(shape("qwen3-8b"), 40_960)),
    *logged("E29", shape("qwen3-8b"), 2.40, 17_472, 40),
    Case("E31", 10.56, GIB, rounded(2), lambda: cache(LLAMA_2_13B, 865 * 16, page=16)),
    Case("E31", 327, 16, exact, lambda: pool_tokens(LLAMA_2_13B, 4, page=16)),
    Case("E33", 10.79, 1, rounded(2), lambda: cache(LLAMA_3_70B, 1381 * 16) / cache(LLAMA_3_70B, 2048, page=16)),
    Case("E35", 262_144, 1, exact, lambda: cache(cache_only(1, 8, 64), 1, page=128)),
    Case("E35", 13_296, 128, percent(0.1), lambda: pool_tokens(shape("llama-3.2-1b"), 51.98, page=128)),
    Case("E35", 207.73, 8192, percent(0.1), lambda: pool_tokens(shape("llama-3.2-1b"), 51.98, page=128)),
    Case("E37", 0.04, GIB, units(0.02), lambda: left_of(39.38, 0.95, 34.43, 0.43, 2.51)),
    Case("E39", -1.05, GIB, both_negative, lambda: left_of(8, 0.70, 5.20, 1.42)),
]


def floor_of(card: Accelerator, flops: float, n_bytes: float, n_cards: int, dtype: str = "bf16") -> Floor:
    """The floor of a pass that is shared out evenly."""
    found = floor(card, DTYPES[dtype], flops, n_bytes / n_cards, n_cards)
    assert found is not None
    return found


def crossing(card: Accelerator, dtype: str) -> float:
    """The critical batch."""
    batch = critical_batch(card, DTYPES[dtype])
    assert batch is not None
    return batch


def step(batch: int) -> float:
    """Seconds that LLaMA-2-13B's weights and a cache with 8 of its 40 KV heads take on eight TPU v5e."""
    fewer_heads = cache(cache_only(40, 8, 128), 8192, batch=batch)
    return float(floor_of(V5E, 0, weight_bytes(LLAMA_2_13B, WeightDtypes()) + fewer_heads, 8).memory_s)


def all_of_70b() -> int:
    """Bytes of LLaMA-3-70B with 32 sequences of 8,192, both in int8."""
    return weight_bytes(LLAMA_3_70B, WeightDtypes(INT8)) + cache(LLAMA_3_70B, 8192, "int8", batch=32)


def attention_intensity(n_new: int, n_total: int) -> float:
    """FLOP a byte of one head's attention, its scores kept on the chip: queries, outputs and the cache's rows move."""
    listed = operators(cache_only(1, 1, 128), Pass(n_new, n_total - n_new))
    scores, gathering = (next(one for one in listed if one.name == name) for name in ("scores", "gathering"))
    rows = sum(one.kv_read + (one.kv_written if n_new > 1 else 0) for one in listed)
    return (scores.flops + gathering.flops) / (rows + scores.activations_read + gathering.activations_written)


V5E = device(bandwidth=8.2e11, bf16=197e12)
KIPPLY_A100 = device(memory=40 * GB, bandwidth=1.5e12, bf16=312e12)
# Rows J14 and J16 have times for communication too, which are no part of a floor.
J = [
    Case("J02", 4.17, 1e-3, percent(1), lambda: step(1)),
    Case("J02", 5.60, 1e-3, percent(1), lambda: step(8)),
    Case("J02", 7.23, 1e-3, percent(1), lambda: step(16)),
    Case("J02", 10.50, 1e-3, percent(1), lambda: step(32)),
    Case("J02", 17.04, 1e-3, percent(1), lambda: step(64)),
    Case("J02", 52.99, 1e-3, percent(1), lambda: step(240)),
    Case("J04", 2.5, 1e-3, percent(3), lambda: floor_of(device(bandwidth=8.1e11), 0, 30e9 + 4 * 8192e5, 16).memory_s),
    Case("J06", 17, 1e-3, percent(3), lambda: floor_of(V5E, 0, all_of_70b(), 8).memory_s),
    Case("J06", 112, GB, percent(3), all_of_70b),
    Case("J08", 240, 1, percent(2), lambda: crossing(accelerator_named("tpu-v5e"), "bf16")),
    Case("J08", 120, 1, percent(2), lambda: crossing(accelerator_named("tpu-v5e"), "int8")),
    # Multiplied in int8 as well: a device whose rate is the one of int8.
    Case("J08", 243, 1, percent(2), lambda: crossing(device(bandwidth=8.1e11, bf16=394e12), "int8")),
    Case("J10", 208, 1, exact, lambda: crossing(KIPPLY_A100, "bf16")),
    Case("J10", 208, 1, percent(4), lambda: crossing(accelerator_named("a100-sxm-40gb"), "bf16")),
    *(
        Case("J12", new * total / (new + total), 1, exact, partial(attention_intensity, new, total))
        for new, total in ((1, 1), (1, 8192), (512, 512), (7, 1000), (4096, 4096))
    ),
    Case("J14", 22, 1e-3, percent(3), lambda: floor_of(KIPPLY_A100, 0, 2 * 260e9, 16).memory_s),
    Case("J16", 21, 1e-3, percent(12), lambda: floor_of(KIPPLY_A100, 2 * 52e9 * 256, 0, 4).compute_s),
    Case("J18", 65, 0.01, units(2), lambda: weight_bytes(LLAMA_2_13B, WeightDtypes()) / KIPPLY_A100.memory_bytes),
]
TINY = dense(2, 64, 4, 2, 128, 100, head_dim=16)
OWN = [
    # Pools cut to pages of another size: 3 GiB hold 24,576 positions of Llama-3.1-8B, which are 245 pages of 100.
    Case("E+page 1", 24_576, 1, exact, lambda: pool_tokens(LLAMA_8B, 3)),
    Case("E+page 100", 24_500, 1, exact, lambda: pool_tokens(LLAMA_8B, 3, page=100)),
    Case("E+3 ranks", 65_536, 1, exact, lambda: pool_tokens(LLAMA_8B, 3, ranks=3)),  # 3 heads a rank: 48 KiB
    Case("E+q8_0", 3 * GIB // 69_632, 1, exact, lambda: pool_tokens(LLAMA_8B, 3, kv="q8_0")),
    # Beyond its window a layer takes no more: 29 × 1,024 × 4 KiB = 116 MiB, and 5 × 4 KiB a position for the rest.
    Case("E+windows", (1024 - 116) * 2**20 // (20 * 2**10), 1, exact, lambda: pool_tokens(shape("gemma-3-4b"), 1)),
    Case("E+below window", 700, 1, exact, lambda: pool_tokens(shape("gemma-3-4b"), 34 * 4 * 700 / 2**20)),
    Case("J+h100 fp8", 295.4, 1, percent(0.1), lambda: crossing(accelerator_named("h100-sxm"), "fp8")),
    Case("J+h100 bf16", 295.2, 1, percent(0.1), lambda: crossing(accelerator_named("h100-sxm"), "bf16")),
    Case("J+h100 q4_0", 83.0, 1, percent(0.1), lambda: crossing(accelerator_named("h100-sxm"), "q4_0")),
    Case("J+h100 f32", 590.4, 1, percent(0.1), lambda: crossing(accelerator_named("h100-sxm"), "f32")),
    Case("J+t4 in fp16", 203.1, 1, percent(0.1), lambda: crossing(accelerator_named("t4"), "bf16")),
]


@pytest.mark.parametrize("case", [*E, *J, *OWN], ids=case_id)
def test_capacities_are_as_published(case: Case) -> None:
    case.check()


def test_every_row_is_computed_or_left_out() -> None:
    check_ids(IDS, E, J)


def test_what_does_not_fit_holds_nothing() -> None:
    """E39: a server without room for its weights refuses to start."""
    room = int(left_of(8, 0.70, 5.20, 1.42))
    assert max_batch(per_token(LLAMA_8B), room) == 0
    found = fit(
        LLAMA_8B,
        capacity=10 * GIB,
        n_tokens=1,
        batch=1,
        weight_dtypes=WeightDtypes(),
        kv_dtypes=kv_dtypes("bf16"),
    )
    assert (found.fits, found.max_context, found.max_batch) == (False, 0, 0)


def test_pages_are_whole_for_every_sequence() -> None:
    """E31: a sequence's last page is its own, however little is in it."""
    assert cache(LLAMA_2_13B, 17, batch=5, page=16) == 5 * cache(LLAMA_2_13B, 32)


def test_what_is_left_of_the_card_goes_to_the_cache() -> None:
    """J18: with 5% of 40 GB for everything else, about 30% are left."""
    left = capacity_bytes(KIPPLY_A100, 0.95) - weight_bytes(LLAMA_2_13B, WeightDtypes())
    assert left / KIPPLY_A100.memory_bytes == pytest.approx(0.30, abs=0.02)


def test_without_a_peak_there_is_no_threshold() -> None:
    assert critical_batch(replace(V5E, dense_flops=()), BF16) is None
    assert floor(replace(V5E, dense_flops=()), BF16, 1, 1) is None
