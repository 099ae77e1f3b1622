"""Published weight memory and its growth with the cache (F), parameter counts (G), total and active experts (M)."""

from __future__ import annotations

import pytest

from core.estimate.catalogue import shape
from core.estimate.dtypes import BF16, DTYPES, Dtype, WeightDtypes, weight_dtypes
from core.estimate.fit import rank_weight_bytes
from core.estimate.flops import chapter_params
from core.estimate.shape import Experts, FeedForward, LayerGroup, ModelShape
from core.estimate.weights import parameters, weight_bytes, weights
from tests.unit.published import (
    GB,
    GIB,
    LLAMA_2_13B,
    LLAMA_3_70B,
    MIB,
    Case,
    above,
    cache,
    case_id,
    check_ids,
    dense,
    exact,
    mixed,
    percent,
    rounded,
    units,
    within_above,
)

IDS = """
    F01 F03 F05 F07 F09 F11 F13 F15 F17 F19 F21 F23
    G01 G03 G05 G07 G09 G11 G13 G15 G17 G19 G21
    M02 M04
"""
# 128 four-bit numbers, a 16-bit scale and a 4-bit zero are 66.5 bytes, so two groups 133.
AWQ = Dtype("awq", 256, 133, 5)
INT8_GROUPS = Dtype("int8g64", 64, 68, 4)  # one 32-bit scale per 64
MLX8, MLX4 = Dtype("mlx8", 64, 68, 4), Dtype("mlx4", 64, 36, 4)  # a 16-bit scale and a 16-bit bias per 64
QWEN2_5_3B = dense(36, 2048, 16, 2, 11008, 151_936, tied=True, qkv_bias=True)
QWEN3_235B = ModelShape(
    name="Qwen3-235B-A22B",
    architecture="qwen3_moe",
    d_model=4096,
    vocab_size=151_936,
    context_limit=0,
    groups=tuple(
        LayerGroup(
            n_layers=94,
            attention=group.attention,
            feed_forward=Experts(n_experts=128, n_active=8, d_expert=1536),
            norm_width=2 * 4096,
        )
        for group in dense(94, 4096, 64, 4, 1, 1, qk_norm="head").groups
    ),
    final_norm_width=4096,
)


def stored(model: ModelShape, dtypes: str | WeightDtypes = "bf16") -> int:
    """Bytes of the weights."""
    return weight_bytes(model, weight_dtypes(dtypes) if isinstance(dtypes, str) else dtypes)


def growth(slug: str) -> int:
    """Bytes that a prompt of 30,720 takes more than one of 6,144."""
    return cache(shape(slug), 30_720) - cache(shape(slug), 6144)


def with_cache(dtype: Dtype) -> int:
    """Weights of Qwen3-30B-A3B and a cache of 2,048 positions read and 128 written."""
    return stored(shape("qwen3-30b-a3b"), WeightDtypes(dtype)) + cache(shape("qwen3-30b-a3b"), 2048 + 128)


AWQ_LINEAR = WeightDtypes(BF16, (("attention", AWQ), ("feed_forward", AWQ)))
F = [
    Case("F01", 14.9888, GIB, above(0.1, 0.5), lambda: stored(shape("llama-3.1-8b"))),
    Case("F03", 5.7915, GIB, above(0.1, 1), lambda: stored(QWEN2_5_3B, "f16")),
    Case("F05", 28.4767, GIB, above(0.1, 0.5), lambda: rank_weight_bytes(shape("qwen3-30b-a3b"), WeightDtypes(), 2)),
    Case("F07", 5.29, GIB, above(0, 3), lambda: stored(shape("qwen2.5-7b"), AWQ_LINEAR)),
    Case("F07", 5.188, GIB, rounded(3), lambda: stored(shape("qwen2.5-7b"), AWQ_LINEAR)),
    Case("F09", 59_851.68, MIB, percent(2), lambda: stored(shape("gpt-oss-120b"), "q8_0,experts=mxfp4")),
    Case("F11", 27.51, GIB, percent(0.2), lambda: stored(shape("qwen3-14b"))),
    Case("F11", 14.62, GIB, percent(0.2), lambda: stored(shape("qwen3-14b"), "q8_0")),
    Case("F13", 26, GB, percent(4), lambda: stored(shape("llama-2-7b"), "f32")),
    Case("F13", 26, GIB, percent(4), lambda: stored(shape("llama-2-7b"), "f32")),
    Case("F13", 6.7, GIB, percent(4), lambda: stored(shape("llama-2-7b"), WeightDtypes(INT8_GROUPS))),
    Case("F13", 7.16, GB, rounded(2), lambda: stored(shape("llama-2-7b"), WeightDtypes(INT8_GROUPS))),
    Case("F15", 2689, MIB, units(2), lambda: growth("qwen3-0.6b")),
    Case("F17", 3457, MIB, units(2), lambda: growth("qwen3-4b")),
    Case("F19", 3841, MIB, units(2), lambda: growth("qwen3-14b")),
    Case("F21", 2305, MIB, units(2), lambda: growth("qwen3-30b-a3b")),
    Case("F23", 33.46, GB, within_above(1.2), lambda: with_cache(MLX8)),
    Case("F23", 18.20, GB, within_above(1.2), lambda: with_cache(MLX4)),
]


def total(model: ModelShape) -> int:
    """All trained numbers."""
    return parameters(model).total


def active(model: ModelShape) -> int:
    """What a token uses of the experts' part."""
    return sum(weight.active for weight in weights(model) if weight.part == "experts")


def one_expert(model: ModelShape) -> int:
    """The numbers of one routed expert."""
    return sum(weight.size for weight in weights(model) if weight.experts)


def block(part: FeedForward | Experts) -> ModelShape:
    """One layer's feed-forward part, of width 7168."""
    return mixed(LayerGroup(n_layers=1, attention=None, feed_forward=part, norm_width=0), d=7168)


MOE_BLOCK = block(Experts(n_experts=8, n_active=2, d_expert=1792))
GPT2_WITHOUT_BIAS = dense(12, 768, 12, 12, 3072, 50_257, head_dim=64, tied=True, gated=False, positions=1024)
QWEN2_5_14B = dense(48, 5120, 40, 8, 13824, 152_064, qkv_bias=True)
QWEN2_5_HALF_B = dense(24, 896, 14, 2, 4864, 151_936, head_dim=64, tied=True, qkv_bias=True)
QWEN3_1_7B = dense(28, 2048, 16, 8, 6144, 151_936, tied=True, qk_norm="head")
GEMMA_7B = dense(28, 3072, 16, 16, 24576, 256_000, head_dim=256, tied=True)
CHATGLM2_6B = dense(28, 4096, 32, 2, 13696, 65_024, qkv_bias=True)
G = [
    Case("G01", 13_015_866_880 - 2560, 1, exact, lambda: total(LLAMA_2_13B)),
    Case("G03", 70_553_706_496, 1, exact, lambda: total(LLAMA_3_70B)),
    Case("G05", 14_770_033_664, 1, exact, lambda: total(QWEN2_5_14B)),
    Case("G07", 494_032_768, 1, exact, lambda: total(QWEN2_5_HALF_B)),
    Case("G09", 2_031_739_904 - 311_164_928, 1, exact, lambda: total(QWEN3_1_7B)),
    Case("G11", 22, GB, rounded(0), lambda: parameters(QWEN3_235B).active),
    Case("G11", 22_190_763_520, 1, exact, lambda: chapter_params(QWEN3_235B)),
    Case("G13", 8.54, GB, rounded(2), lambda: total(GEMMA_7B)),
    Case("G13", 8_537_680_896, 1, exact, lambda: total(GEMMA_7B)),
    Case("G15", 124_337_664, 1, exact, lambda: total(GPT2_WITHOUT_BIAS)),
    Case("G17", 6_243_584_000, 1, exact, lambda: total(CHATGLM2_6B)),
    Case("G19", 56.3, GB, percent(0.5), lambda: parameters(LLAMA_3_70B).feed_forward),
    Case("G19", 2.1, GB, percent(0.5), lambda: parameters(LLAMA_3_70B).input_table + parameters(LLAMA_3_70B).head),
    Case("G19", 12, GB, rounded(0), lambda: parameters(LLAMA_3_70B).attention),
    Case("G19", 70.4, GB, percent(0.5), lambda: total(LLAMA_3_70B)),
    Case("G21", 308_281_344, 1, exact, lambda: parameters(block(FeedForward(d_ff=14336))).feed_forward),
    Case("G21", 38_535_168, 1, exact, lambda: one_expert(MOE_BLOCK)),
    Case("G21", 57_344, 1, exact, lambda: parameters(MOE_BLOCK).experts - 8 * one_expert(MOE_BLOCK)),
    Case("G21", 308_338_688, 1, exact, lambda: parameters(MOE_BLOCK).experts),
    Case("G21", 77_127_680, 1, exact, lambda: active(MOE_BLOCK)),
]
M = [
    Case("M02", 671.03, GB, rounded(2), lambda: total(shape("deepseek-v3"))),
    Case("M02", 37.55, GB, rounded(2), lambda: chapter_params(shape("deepseek-v3"))),
    Case("M04", 46.70, GB, rounded(2), lambda: total(shape("mixtral-8x7b-v0.1"))),
    Case("M04", 12.88, GB, rounded(2), lambda: chapter_params(shape("mixtral-8x7b-v0.1"))),
]
# Two layers of width 80, which no block divides: rows of 80 numbers take 3 blocks, of 96 three, of 200 seven.
ODD = dense(2, 80, 3, 1, 200, 11, head_dim=32)
ODD_ROWS = 3 * (11 + 11 + 2 * (96 + 32 + 32 + 200 + 200 + 2) + 1) + 2 * (3 * 80 + 7 * 80)
SHARED = block(Experts(n_experts=4, n_active=3, d_expert=10, d_shared=20, has_shared_gate=True, has_router_bias=True))
OWN = [
    Case("F+odd rows", ODD_ROWS * 34, 1, exact, lambda: stored(ODD, "q8_0")),
    Case("F+odd rows", ODD_ROWS * 20, 1, exact, lambda: stored(ODD, "q4_1")),
    Case("F+gpt-oss-20b", 12.8, GIB, percent(2), lambda: stored(shape("gpt-oss-20b"), "bf16,experts=mxfp4")),
    Case("F+3 ranks", 5_353_507_499, 1, exact, lambda: rank_weight_bytes(shape("llama-3.1-8b"), WeightDtypes(), 3)),
    Case("F+fp8", 8_030_261_248, 1, exact, lambda: stored(shape("llama-3.1-8b"), "fp8")),
    Case("F+table alone", 134_515_008 * 2 - 49152 * 576, 1, exact, lambda: stored(shape("smollm2"), "bf16,table=fp8")),
    Case("G+qwen2.5-3b", 3_085_938_688, 1, exact, lambda: total(QWEN2_5_3B)),
    Case("G+qwen3-235b", 235_093_634_560, 1, exact, lambda: total(QWEN3_235B)),
    Case("G+llama-2-70b", 68_976_648_192, 1, exact, lambda: total(dense(80, 8192, 64, 8, 28672, 32000))),
    Case("G+mistral", 7_241_732_096, 1, exact, lambda: total(dense(32, 4096, 32, 8, 14336, 32000))),
    Case("M+shared", 7168 * (4 + 1 + 3 * (4 * 10 + 20)) + 4, 1, exact, lambda: parameters(SHARED).experts),
    Case("M+shared", 7168 * (4 + 1 + 3 * (3 * 10 + 20)) + 4, 1, exact, lambda: active(SHARED)),
    Case("M+gpt-oss-20b", 3.6, GB, rounded(1), lambda: parameters(shape("gpt-oss-20b")).active),
    Case("M+gpt-oss-120b", 5.1, GB, rounded(1), lambda: parameters(shape("gpt-oss-120b")).active),
    Case("M+qwen3-30b", 3_353_032_704, 1, exact, lambda: chapter_params(shape("qwen3-30b-a3b"))),
    Case("M+v2-lite", 2_451_435_008, 1, exact, lambda: parameters(shape("deepseek-v2-lite")).active),
]


@pytest.mark.parametrize("case", [*F, *G, *M, *OWN], ids=case_id)
def test_weights_are_as_many_and_as_large_as_published(case: Case) -> None:
    case.check()


def test_every_row_is_computed_or_left_out() -> None:
    check_ids(IDS, F, G, M)


def test_a_format_costs_its_scales() -> None:
    """F13: 68 bytes per 64 numbers, not 64."""
    plain = stored(shape("llama-2-7b"), "int8")
    assert stored(shape("llama-2-7b"), WeightDtypes(INT8_GROUPS)) * 64 == plain * 68
    assert INT8_GROUPS.without_scales.bytes_per_number == DTYPES["int8"].bytes_per_number
