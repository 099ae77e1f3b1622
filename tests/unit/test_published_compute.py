"""Published compute (H) and speculative decoding (K)."""

from __future__ import annotations

from math import inf, nan

import pytest

from core.estimate.accelerators import accelerator_named, peak_flops
from core.estimate.catalogue import shape
from core.estimate.dtypes import DTYPES
from core.estimate.flops import (
    decode_flops,
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_flops,
    weights_multiplied,
)
from core.estimate.shape import ModelShape
from core.estimate.speculative import operations, speedup, tokens_per_pass
from core.estimate.traffic import Pass, operators
from core.estimate.weights import parameters
from tests.unit.published import (
    LLAMA_2_70B,
    LLAMA_3_70B,
    Case,
    case_id,
    check_ids,
    dense,
    exact,
    percent,
    rounded,
    units,
)

IDS = "H02 H04 H06 H08 H10 H12 H14 H16 H18 K02 K04 K06 K08"
BAICHUAN_7B = dense(32, 4096, 32, 32, 11008, 64_000)
QWEN_7B = dense(32, 4096, 32, 32, 11008, 151_936, qkv_bias=True)
GPT2_MEDIUM = dense(24, 1024, 16, 16, 4096, 50_257, head_dim=64, tied=True, gated=False, positions=1024)
GPT2_XL = dense(48, 1600, 25, 25, 6400, 50_257, head_dim=64, tied=True, gated=False, positions=1024)
PLAIN_13B_LAYER = dense(1, 5120, 40, 40, 4 * 5120, 1, gated=False)


def forward(model: ModelShape, n_tokens: int) -> int:
    """FLOP of all positions through the layers and the head, every query with every key."""
    return int(layers_flops(model, n_tokens, 0) + head_flops(model, n_tokens))


def products_with_weights(model: ModelShape, n_tokens: int) -> int:
    """FLOP of all positions through the layers and the head, without attention's own products."""
    return 2 * n_tokens * sum(weights_multiplied(model))


def a100_seconds(flops: float) -> float:
    """At the A100's dense peak."""
    peak = peak_flops(accelerator_named("a100-sxm-80gb"), DTYPES["bf16"])
    assert peak is not None
    return flops / peak


def product(model: ModelShape, n_tokens: int, name: str) -> int:
    """FLOP of one operator."""
    return next(one.flops for one in operators(model, Pass(n_tokens)) if one.name == name)


H = [
    Case("H02", 1733.62, 1e9, percent(0.05), lambda: forward(BAICHUAN_7B, 128)),
    Case("H04", 1825.83, 1e9, percent(0.05), lambda: forward(QWEN_7B, 128)),
    Case("H04", 7_721_324_544, 1, exact, lambda: parameters(QWEN_7B).total),
    Case("H06", 291_648_307_200, 1, exact, lambda: forward(shape("gpt2"), 1024)),
    Case("H06", 17_716_740_096, 12, exact, lambda: layers_flops(shape("gpt2"), 1024, 0)),
    Case("H06", 79_047_426_048, 1, exact, lambda: head_flops(shape("gpt2"), 1024)),
    # Backwards is twice as much as forwards.
    Case("H08", 37.14, 0.01, units(0.05), lambda: a100_seconds(3 * 100 * forward(shape("gpt2"), 1024)) / 0.755),
    Case("H10", 1.4, 1e12, rounded(1), lambda: products_with_weights(GPT2_MEDIUM, 2 * 1024)),
    Case("H12", 6.4, 1e12, rounded(1), lambda: products_with_weights(GPT2_XL, 2 * 1024)),
    Case("H14", 344, 1e-6, percent(1), lambda: a100_seconds(product(PLAIN_13B_LAYER, 512, "up"))),
    Case("H14", 344, 1e-6, percent(1), lambda: a100_seconds(product(PLAIN_13B_LAYER, 512, "down"))),
    Case("H14", 86, 1e-6, percent(1), lambda: a100_seconds(product(PLAIN_13B_LAYER, 512, "o_proj"))),
    Case("H16", 4.38, 1e12, percent(0.5), lambda: 32 * 2 * weights_multiplied(LLAMA_2_70B)[0]),
    Case("H18", 4.2, 1e11, percent(1), lambda: 3 * decode_flops_chapter(LLAMA_3_70B, 0)),
]
K = [
    Case("K02", 1.58, 1, rounded(2), lambda: operations(0.7, 3, 0)),
    Case("K02", 2.53, 1, rounded(2), lambda: speedup(0.7, 3, 0)),
    Case("K04", 1.63, 1, rounded(2), lambda: operations(0.8, 5, 0)),
    Case("K04", 3.69, 1, rounded(2), lambda: speedup(0.8, 5, 0)),
    Case("K06", 1.6, 1, rounded(1), lambda: operations(0.9, 10, 0)),
    Case("K06", 6.86, 1, rounded(2), lambda: speedup(0.9, 10, 0)),
    Case("K08", 4.69, 1, rounded(2), lambda: tokens_per_pass(0.9, 5)),
]
# One layer of width 8: 4 heads of 2, one KV head, d_ff 6, V 10. A position meets 8·(8 + 2 + 2 + 8) + 3·48 = 304 weights
# in the layer and 80 in the head; a (query, key) pair costs 2·4·(2 + 2) = 32 FLOP.
SMALL = dense(1, 8, 4, 1, 6, 10, head_dim=2)
# DeepSeek-V3: latent attention in 61 layers, three dense ones, and 58 with a router, 8 experts chosen and one shared.
V3_ATTENTION = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
V3_LAYERS = 61 * V3_ATTENTION + 3 * 3 * 7168 * 18432 + 58 * (7168 * 256 + 9 * 3 * 7168 * 2048)
OWN = [
    Case("H+decode", 2 * 304 + 2 * 80 + 32 * 9, 1, exact, lambda: decode_flops(SMALL, 9)),
    Case("H+decode of 3", 3 * (2 * 304 + 2 * 80 + 32 * 9), 1, exact, lambda: decode_flops(SMALL, 9, 3)),
    Case("H+square", 9 * 2 * 304 + 2 * 80 + 32 * 81, 1, exact, lambda: prefill_flops(SMALL, 9)),
    Case("H+causal", 9 * 2 * 304 + 2 * 80 + 32 * 45, 1, exact, lambda: prefill_flops(SMALL, 9, causal=True)),
    Case("H+chunks", 9 * 2 * 304 + 160 + 32 * 45, 1, exact, lambda: prefill_flops(SMALL, 9, causal=True, chunk=4)),
    # Chunks of 4, 4 and 1 meet 4·4, 4·8 and 1·9 pairs when each computes its whole rectangle.
    Case("H+rectangles", 9 * 2 * 304 + 160 + 32 * 57, 1, exact, lambda: prefill_flops(SMALL, 9, chunk=4)),
    Case("H+behind", 4 * 2 * 304 + 32 * (4 * 5 + 10), 1, exact, lambda: layers_flops(SMALL, 4, 5, pairs="causal")),
    # 61 layers, 128 heads: absorbed 576 + 512 numbers a pair, expanded 192 + 128.
    Case("H+absorbed", 2 * 61 * 128 * 1088, 1, exact, lambda: one_more_key("deepseek-v3")),
    Case("H+windowed", 2 * 5 * 8 * 512, 1, exact, lambda: one_more_key("gemma-3-4b")),
    Case("H+deepseek-v3", V3_LAYERS, 1, exact, lambda: weights_multiplied(shape("deepseek-v3"))[0]),
    # A draft that is never right yields one token; one that always is, all of its own and one more.
    Case("K+never", 1, 1, exact, lambda: tokens_per_pass(0, 7)),
    Case("K+always", 8, 1, exact, lambda: tokens_per_pass(1, 7)),
    Case("K+no draft", 1, 1, exact, lambda: speedup(0.6, 0, 0.3)),
    Case("K+always, at a cost", 5 / 2, 1, exact, lambda: speedup(1, 4, 0.25)),
    Case("K+loss", 1.5 / 2, 1, exact, lambda: speedup(0.5, 1, 1)),
    Case("K+operations", (2 * 0.5 + 3) / 1.75, 1, exact, lambda: operations(0.5, 2, 0.5)),
    Case("K+operations, always", (4 * 0.25 + 5) / 5, 1, exact, lambda: operations(1, 4, 0.25)),
]


def one_more_key(slug: str) -> int:
    """What a decode step costs more with one more position, beyond any window."""
    return int(decode_flops(shape(slug), 5001) - decode_flops(shape(slug), 5000))


@pytest.mark.parametrize("case", [*H, *K, *OWN], ids=case_id)
def test_compute_is_as_published(case: Case) -> None:
    case.check()


def test_every_row_is_computed_or_left_out() -> None:
    check_ids(IDS, H, K)


@pytest.mark.parametrize("gamma", [0, 1, 5, 40])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.99, 1 - 1e-9])
def test_the_series_is_the_paper_s_fraction(alpha: float, gamma: int) -> None:
    """And close to α = 1 it goes over into the limit without a jump."""
    assert tokens_per_pass(alpha, gamma) == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha), rel=1e-6)
    assert 1 <= tokens_per_pass(alpha, gamma) <= tokens_per_pass(1, gamma) == gamma + 1


@pytest.mark.parametrize(
    ("alpha", "gamma", "cost_ratio"),
    [(-0.1, 3, 0.1), (1.1, 3, 0.1), (nan, 3, 0.1), (0.5, -1, 0.1), (0.5, True, 0.1), (0.5, 3, -0.1), (0.5, 3, inf)],
)
def test_what_is_no_probability_or_count_is_an_error(alpha: float, gamma: int, cost_ratio: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        speedup(alpha, gamma, cost_ratio)
    with pytest.raises(ValueError, match="must be"):
        operations(alpha, gamma, cost_ratio)


def test_half_a_token_is_no_draft() -> None:
    with pytest.raises(ValueError, match=r"not 2\.5"):
        tokens_per_pass(0.5, 2.5)  # type: ignore[arg-type]
