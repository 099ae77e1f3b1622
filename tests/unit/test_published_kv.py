"""Published sizes of the KV cache: per token (A), tables (B), server logs in f16 (C), and other formats (D)."""

from __future__ import annotations

from functools import partial

import pytest

from core.estimate.catalogue import shape
from core.estimate.kv import kv_bytes_per_token
from tests.unit.published import (
    GB,
    GIB,
    KIB,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_3_70B,
    MIB,
    Case,
    cache,
    cache_layers,
    cache_only,
    case_id,
    check_ids,
    exact,
    idle_layers,
    keys,
    latent_only,
    mixed,
    per_token,
    percent,
    pool_tokens,
    rounded,
    values,
    without_windows,
)

IDS = """
    A01 A03 A05 A07 A09 A11 A13 A15 A17 A19
    B01 B03 B05 B07 B09 B11 B13 B15 B17 B19
    C01 C03 C05 C07 C09 C11 C13 C15 C17 C19 C21 C23
    D01 D03 D05 D07 D09 D11 D13 D15 D17 D19 D21 D23 D25 D27
"""
OPT_13B = cache_only(40, 40, 128)
QWEN3_235B = cache_only(94, 4, 128)


def local_and_full(n_kv: int) -> float:
    """32 layers of width 4096, five of six with a window of 1,024, at 32,768 positions."""
    return cache(mixed(cache_layers(27, n_kv, 128, 1024), cache_layers(5, n_kv, 128)), 32768)


# Per token; a dtype of one byte counts elements.
A = [
    Case("A01", 800, KIB, exact, lambda: per_token(OPT_13B, "f16")),
    Case("A01", 819.2, 1000, exact, lambda: per_token(OPT_13B, "f16")),
    Case("A03", 1.6, GIB, percent(5), lambda: cache(OPT_13B, 2048, "f16")),
    Case("A03", 1.6, GB, percent(5), lambda: cache(OPT_13B, 2048, "f16")),
    Case("A05", 2_097_152, 1, exact, lambda: per_token(cache_only(64, 64, 128), "f16")),
    Case("A07", 324, 1000, percent(2), lambda: per_token(LLAMA_3_70B)),
    Case("A07", 320, KIB, exact, lambda: per_token(LLAMA_3_70B)),
    Case("A09", 110.6, 1000, rounded(1), lambda: per_token(cache_only(27, 16, 128), "int8")),
    Case("A11", 34.6, 1000, rounded(1), lambda: per_token(latent_only(60), "int8")),
    Case("A13", 70_272, 1, exact, lambda: per_token(shape("deepseek-v3"))),
    Case("A15", 96, KIB, exact, lambda: per_token(shape("qwen3-30b-a3b"))),
    Case("A17", 144, KIB, exact, lambda: per_token(cache_only(36, 8, 128))),
    Case("A19", 24_576, 61, exact, lambda: keys(shape("deepseek-v3").with_expanded_latents, 1, "int8")),
    Case("A19", 16_384, 61, exact, lambda: values(shape("deepseek-v3").with_expanded_latents, 1, "int8")),
]
B = [
    Case("B01", 2, GIB, exact, lambda: cache(shape("llama-2-7b"), 4096, "f16")),
    Case("B01", 2, GB, rounded(0), lambda: cache(shape("llama-2-7b"), 4096, "f16")),
    # The source has 1,024 positions in its 1k, and 1,000 in each k of 16k and 128k.
    Case("B03", 0.313, GIB, percent(0.5), lambda: cache(LLAMA_3_70B, 1024, "f16")),
    Case("B03", 4.88, GIB, percent(0.5), lambda: cache(LLAMA_3_70B, 16 * 1000, "f16")),
    Case("B03", 39.06, GIB, percent(0.5), lambda: cache(LLAMA_3_70B, 128 * 1000, "f16")),
    Case("B05", 3.14, GB, percent(0.7), lambda: local_and_full(32)),
    Case("B05", 0.78, GB, percent(0.7), lambda: local_and_full(8)),
    Case("B07", 6.7, GB, percent(0.5), lambda: cache(LLAMA_2_13B, 8192)),
    Case("B09", 256, MIB, exact, lambda: cache(shape("llama-3.1-8b"), 2048, "f16")),
    Case("B09", 256, MIB, exact, lambda: cache(shape("mixtral-8x7b-v0.1"), 2048, "f16")),
    Case("B09", 128, MIB, exact, lambda: keys(cache_only(32, 8, 128), 2048, "f16")),
    Case("B09", 128, MIB, exact, lambda: values(cache_only(32, 8, 128), 2048, "f16")),
    Case("B11", 640, MIB, exact, lambda: cache(LLAMA_3_70B, 2048, "f16")),
    Case("B11", 480, MIB, exact, lambda: cache(cache_only(60, 8, 128), 2048, "f16")),
    Case("B11", 512, MIB, exact, lambda: cache(cache_only(64, 8, 128), 2048, "f16")),
    Case("B13", 1.51, GB, percent(0.5), lambda: cache(LLAMA_2_70B, 1024 + 128, "f16", batch=32, ranks=8)),
    Case("B15", 4, GIB, exact, lambda: cache(shape("llama-3.1-8b"), 32768, "f16")),
    Case("B15", 1.1, GIB, percent(3), lambda: cache(shape("llama-3.1-8b"), 32768, "q4_0")),
    Case("B17", 24_964_497_408, 1, exact, lambda: cache(cache_only(62, 8, 128), 196_608, "fp8")),
    Case("B19", 21_000, 1, percent(5), lambda: pool_tokens(shape("qwen3-30b-a3b"), 2)),
    Case("B19", 21_000, 1, percent(5), lambda: pool_tokens(shape("qwen3-30b-a3b"), 2 * GB / GIB)),
    Case("B19", 175_000, 1, percent(5), lambda: pool_tokens(shape("qwen3-30b-a3b"), 16)),
]
C = [
    Case("C01", 2048, MIB, exact, lambda: cache(shape("qwen3-32b"), 8192, "f16")),
    Case("C03", 15872, MIB, exact, lambda: cache(cache_only(62, 16, 128), 32768, "f16")),
    Case("C05", 3072, MIB, exact, lambda: cache(shape("qwen3-30b-a3b"), 32768, "f16")),
    Case("C07", 752, MIB, exact, lambda: cache(QWEN3_235B, 4096, "f16")),
    Case("C07", 376, MIB, exact, lambda: keys(QWEN3_235B, 4096, "f16")),
    Case("C09", 400, MIB, exact, lambda: cache(LLAMA_2_13B, 512, "f16")),
    Case("C11", 896, MIB, exact, lambda: cache(shape("llama-3.2-3b"), 2048, "f16", batch=4)),
    Case("C13", 32, MIB, exact, lambda: cache(shape("llama-3.2-1b"), 1024, "f16")),
    Case("C13", 16, MIB, exact, lambda: values(shape("llama-3.2-1b"), 1024, "f16")),
    Case("C15", 1536, MIB, exact, lambda: cache(cache_only(32, 32, 96), 4096, "f16")),
    Case("C17", 1280, MIB, exact, lambda: cache(LLAMA_2_70B, 4096, "f16")),
    Case("C19", 18432, MIB, exact, lambda: cache(shape("qwen3-8b"), 131_072, "f16")),
    Case("C21", 300, MIB, exact, lambda: cache(cache_only(30, 5, 128), 4096, "f16")),
    Case("C23", 6144, MIB, exact, lambda: cache(without_windows(shape("gpt-oss-20b")), 131_072, "f16")),
    Case("C23", 3072, MIB, exact, lambda: keys(without_windows(shape("gpt-oss-20b")), 131_072, "f16")),
]
# llama.cpp gives a windowed layer the window and one batch of cells, or all of them: the window here is its cells.
QWEN3_6_27B = mixed(cache_layers(16, 4, 256), idle_layers(48))
NEMOTRON_253B = mixed(cache_layers(64, 8, 128), idle_layers(98))
SMALL_24B = cache_only(40, 8, 128)  # 1,040 MiB in f16 are 6,656 positions of it


def expanded(slug: str, n_tokens: int, k: str, v: str, batch: int = 1) -> tuple[int, int]:
    """Bytes of keys and of values with latents written out per head."""
    model = shape(slug).with_expanded_latents
    return keys(model, n_tokens, k) * batch, values(model, n_tokens, v) * batch


D = [
    Case("D01", 102, MIB, exact, lambda: cache(cache_only(12, 8, 64), 8192, "q8_0")),
    Case("D01", 3.19, MIB, rounded(2), lambda: cache(cache_only(12, 8, 64, 128 + 128), 8192, "q8_0")),
    Case("D03", 64, MIB, exact, lambda: cache(cache_only(4, 8, 128), 4096, "f16")),
    Case("D03", 160, MIB, exact, lambda: cache(cache_only(20, 4, 128), 4096, "f16")),
    Case("D03", 60, MIB, exact, lambda: cache(cache_only(20, 4, 128, 1536), 4096, "f16")),
    Case("D05", 552, MIB, exact, lambda: cache(mixed(cache_layers(4, 8, 128), cache_layers(20, 4, 128, 1024)), 32768)),
    Case("D07", 13824, MIB, exact, lambda: cache(cache_only(12, 8, 128), 1_048_576, "q4_0")),
    Case("D07", 40.5, MIB, exact, lambda: cache(cache_only(36, 8, 128, 1024), 1_048_576, "q4_0")),
    Case("D09", 68, MIB, exact, lambda: keys(shape("llama-3.1-8b"), 2048, "q8_0")),
    Case("D09", 36, MIB, exact, lambda: values(shape("llama-3.1-8b"), 2048, "iq4_nl")),
    Case("D09", 104, MIB, exact, lambda: cache(shape("llama-3.1-8b"), 2048, "q8_0:iq4_nl")),
    Case("D11", 2244, MIB, exact, lambda: cache(shape("qwen3-32b"), 16_768, "q8_0", page=256)),
    Case("D13", 1692, MIB, exact, lambda: cache(QWEN3_235B, 32768, "q4_0")),
    Case("D15", 399.5, MIB, exact, lambda: keys(QWEN3_235B, 8192, "q8_0")),
    Case("D15", 1151.5, MIB, exact, lambda: cache(QWEN3_235B, 8192, "q8_0:f16")),
    Case("D17", 1040, MIB, exact, lambda: cache(SMALL_24B, 6656, "f16")),
    Case("D17", 552.5, MIB, exact, lambda: cache(SMALL_24B, 6656, "q8_0")),
    Case("D17", 292.5, MIB, exact, lambda: cache(SMALL_24B, 6656, "q4_0")),
    Case("D19", 5712, MIB, exact, lambda: cache(QWEN3_6_27B, 172_032, "q8_0")),
    Case("D19", 4352, MIB, exact, lambda: keys(QWEN3_6_27B, 262_144, "q8_0")),
    Case("D19", 6656, MIB, exact, lambda: cache(QWEN3_6_27B, 262_144, "q8_0:q4_0")),
    Case("D21", 816, MIB, exact, lambda: keys(NEMOTRON_253B, 12_288, "q8_0")),
    Case("D21", 432, MIB, exact, lambda: values(NEMOTRON_253B, 12_288, "q4_0")),
    Case("D23", 2592, MIB, exact, lambda: expanded("deepseek-v2-lite", 2048, "f16", "f16", batch=8)[0]),
    Case("D23", 1728, MIB, exact, lambda: expanded("deepseek-v2-lite", 2048, "f16", "f16", batch=8)[1]),
    Case("D25", 2196, MIB, exact, lambda: cache(shape("deepseek-v3"), 32768, "f16")),
    Case("D25", 1166.62, MIB, rounded(2), lambda: cache(shape("deepseek-v3"), 32768, "q8_0")),
    Case("D27", 12444, MIB, exact, lambda: expanded("deepseek-v3", 8192, "q8_0", "f16")[0]),
    Case("D27", 15616, MIB, exact, lambda: expanded("deepseek-v3", 8192, "q8_0", "f16")[1]),
]
# A row of 5 heads of 80 is 400 numbers, 12.5 blocks, and takes 13; one of 1 head of 72 is 2.25 blocks and takes 3.
ODD = cache_only(7, 5, 80)
THIRDS = mixed(cache_layers(20, 2, 128, 300), cache_layers(10, 6, 64))
OWN = [
    Case("A+gemma-2", 336, KIB, exact, lambda: per_token(without_windows(shape("gemma-2-9b")))),
    Case("A+glm-4", 40, KIB, exact, lambda: per_token(shape("glm-4-9b-chat"))),
    Case("A+phi-4", 200, KIB, exact, lambda: per_token(shape("phi-4"))),
    Case("A+yi", 98_304, 1, exact, lambda: per_token(shape("yi-1.5-9b"))),
    Case("A+smollm2", 23_040, 1, exact, lambda: per_token(shape("smollm2"))),
    Case("A+gpt2 in f32", 73_728, 1, exact, lambda: per_token(shape("gpt2"), "f32")),
    Case("A+v2-lite", 31_104, 1, exact, lambda: per_token(shape("deepseek-v2-lite"))),
    Case("A+chapter", 576, KIB, exact, lambda: per_token(shape("chapter-8b"))),
    # 5 full layers, 29 that keep 1,024, of 4,096 B each a position.
    Case("B+gemma-3", 4096 * (5 * 10_000 + 29 * 1024), 1, exact, lambda: cache(shape("gemma-3-4b"), 10_000)),
    Case("B+gemma-3 below", 4096 * 34 * 1000, 1, exact, lambda: cache(shape("gemma-3-4b"), 1000)),
    Case("B+thirds", 2 * 2 * (20 * 256 * 300 + 10 * 384 * 999), 1, exact, lambda: cache(THIRDS, 999)),
    Case("B+thirds in pages", 4 * (20 * 256 * 304 + 10 * 384 * 1008), 1, exact, lambda: cache(THIRDS, 999, page=16)),
    # 2 heads on 3 ranks: one each, a copy on the third; 6 heads: two each.
    Case("B+thirds on 3", 4 * (20 * 128 * 300 + 10 * 128 * 999), 1, exact, lambda: cache(THIRDS, 999, ranks=3)),
    Case("B+8 heads on 3", 4 * 32 * 3 * 128 * 50, 1, exact, lambda: cache(shape("llama-3.1-8b"), 50, ranks=3)),
    Case("B+latent on 3", 70_272 * 50, 1, exact, lambda: cache(shape("deepseek-v3"), 50, ranks=3)),
    Case("C+page 7", 21 * 3 * 819_200, 1, exact, lambda: cache(OPT_13B, 15, batch=3, page=7)),
    *(
        Case(f"D+odd {dtype}", 2 * 7 * 13 * block * 11, 1, exact, partial(cache, ODD, 11, dtype))
        for dtype, block in {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}.items()
    ),
    Case("D+odd int4", 2 * 7 * 200 * 11, 1, exact, lambda: cache(ODD, 11, "int4")),
    Case("D+odd on 2", 2 * 7 * 8 * 34 * 11, 1, exact, lambda: cache(ODD, 11, "q8_0", ranks=2)),  # 240 numbers
    Case("D+72 wide", 3 * 34 + 3 * 18, 1, exact, lambda: cache(cache_only(1, 1, 72), 1, "q8_0:q4_0")),
    Case("D+latent in q4_0", 27 * 18 * 18, 1, exact, lambda: cache(shape("deepseek-v2-lite"), 1, "q4_0")),  # 576 wide
    Case("D+q5", 40 * 2048 * 0.75, 1, exact, lambda: per_token(SMALL_24B, "q5_1")),
    Case("D+q5", 40 * 2048 * 0.6875, 1, exact, lambda: per_token(SMALL_24B, "q5_0")),
]


@pytest.mark.parametrize("case", [*A, *B, *C, *D, *OWN], ids=case_id)
def test_the_cache_is_as_large_as_published(case: Case) -> None:
    case.check()


def test_every_row_is_computed_or_left_out() -> None:
    check_ids(IDS, A, B, C, D)


def test_layers_that_cache_nothing_add_nothing() -> None:
    assert per_token(QWEN3_6_27B) == per_token(cache_only(16, 4, 256))
    assert kv_bytes_per_token(mixed(idle_layers(3))) == 0


def test_windows_leave_no_rate() -> None:
    """What one more token adds depends on how many there are."""
    assert kv_bytes_per_token(THIRDS) is None and kv_bytes_per_token(shape("gpt-oss-20b")) is None
