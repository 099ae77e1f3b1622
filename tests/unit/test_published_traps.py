"""Published figures that are wrong (N): what is computed differs, and the mistake behind them has its name here."""

from __future__ import annotations

import pytest

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.dtypes import Dtype, KvDtypes, kv_dtypes
from core.estimate.shape import ModelShape
from core.estimate.wrong import Wrong, wrong_formulas
from tests.unit.published import (
    GB,
    LLAMA_2_70B,
    LLAMA_3_70B,
    MIB,
    Case,
    cache,
    cache_only,
    case_id,
    check_ids,
    exact,
    per_token,
    pool_tokens,
    rounded,
    units,
)

IDS = "N02 N04 N06 N08 N10"
INT64 = Dtype("int8 taken for int64", 1, 8)
BF16, F16, EIGHT = KvDtypes(), kv_dtypes("f16"), KvDtypes(INT64, INT64)
LLAMA_8B, GEMMA, QWEN = shape("llama-3.1-8b"), shape("gemma-3-4b"), shape("qwen2.5-7b")
MIXTRAL = shape("mixtral-8x7b-v0.1")


def mistake(name: str, model: ModelShape, n_tokens: int, kv: KvDtypes, quantity: str = "kv_bytes") -> Wrong:
    """A wrong formula by its name."""
    found = wrong_formulas(model, n_tokens=n_tokens, kv_dtypes=kv)
    return next(wrong for wrong in found if (wrong.name, wrong.quantity) == (name, quantity))


def dense_rate(slug: str) -> float:
    """FLOP/s in fp16 of a device of the catalogue."""
    return dict(accelerator_named(slug).dense_flops)["fp16"]


# What is right where the published figure is not.
RIGHT = [
    Case("N02", 57_344, 1, exact, lambda: per_token(shape("qwen2.5-7b"))),
    Case("N02", 28_672, 1, exact, lambda: per_token(shape("qwen2.5-7b"), "int8")),
    Case("N04", 0.671, GB, rounded(3), lambda: cache(LLAMA_2_70B, 2048, "f16")),
    # 26,702.88 positions of 2 MiB in 56 GB, and 28,672 in 56 GiB.
    Case("N06", 26_702, 1, exact, lambda: pool_tokens(cache_only(64, 64, 128), 56e9 / 2**30)),
    Case("N08", 312, 1e12, exact, lambda: dense_rate("a100-sxm-80gb")),
    Case("N08", 989, 1e12, units(1), lambda: dense_rate("h100-sxm")),
    Case("N08", 121, 1e12, units(1), lambda: dense_rate("l4")),
]
# What was published, out of the mistakes that lead there.
WRONG = [
    Case("N02", 1.53, MIB, rounded(2), lambda: mistake("query_heads", QWEN, 1, EIGHT).value),
    Case("N04", 5.37, GB, rounded(2), lambda: mistake("query_heads", LLAMA_2_70B, 2048, F16).value),
    Case("N04", 5.24, GB, rounded(2), lambda: mistake("query_heads", LLAMA_2_70B, 2000, F16).value),
]
# Further published kinds of mistakes: the factor by which they are off, by hand.
FACTORS = [
    Case("N+query heads", 4, 1, exact, lambda: mistake("query_heads", LLAMA_8B, 8192, BF16).factor),
    Case("N+keys alone", 0.5, 1, exact, lambda: mistake("one_of_keys_and_values", LLAMA_8B, 8192, BF16).factor),
    Case("N+hidden width", 4, 1, exact, lambda: mistake("hidden_width", LLAMA_8B, 8192, BF16).factor),
    Case("N+one layer", 1 / 80, 1, exact, lambda: mistake("layers_forgotten", LLAMA_3_70B, 8192, BF16).factor),
    Case("N+8-bit blocks", 32 / 34, 1, exact, lambda: without_scales("q8_0").factor),
    Case("N+4-bit blocks", 16 / 18, 1, exact, lambda: without_scales("q4_0").factor),
    Case("N+32K", 32_000, 32_768, exact, lambda: mistake("k_of_other_size", LLAMA_8B, 32_768, BF16).factor * 32_768**2),
    Case("N+windows", 34 / (5 + 29 / 128), 1, exact, lambda: mistake("window_forgotten", GEMMA, 131_072, BF16).factor),
    Case("N+tied", 9_241_705_984 + 917_504_000, 1, exact, lambda: tied_twice(shape("gemma-2-9b")) / 2),
    Case("N+one for two", 0.5, 1, exact, lambda: of_decode("multiply_add_is_one", LLAMA_8B).factor),
    # In each of 32 layers 6 of 8 experts are not chosen, of three matrices each.
    Case(
        "N+all experts",
        2 * 32 * 6 * 3 * 4096 * 14_336,
        1,
        exact,
        lambda: off_by(of_decode("total_for_active", MIXTRAL)),
    ),
    Case("N+look-up", 2 * 32_000 * 4096, 1, exact, lambda: off_by(of_decode("look_up_as_product", MIXTRAL))),
    Case("N+mask", 32 * 4 * 4096 * (100**2 - 5050), 1, exact, lambda: off_by(of_prefill("mask_forgotten", LLAMA_8B))),
    Case("N+MHA needs none", 0, 1, exact, lambda: sum(wrong.name == "query_heads" for wrong in of_llama_2())),
    Case("N+untied needs none", 0, 1, exact, lambda: sum("tied" in wrong.name for wrong in of_llama_2())),
]


def of_decode(name: str, model: ModelShape) -> Wrong:
    """A mistake in a decode step at 100 positions."""
    return mistake(name, model, 100, BF16, "decode_flops")


def of_prefill(name: str, model: ModelShape) -> Wrong:
    """A mistake in a prefill of 100 positions."""
    return mistake(name, model, 100, BF16, "prefill_flops")


def off_by(wrong: Wrong) -> float:
    """What a mistake counts too much."""
    return wrong.value - wrong.right


def of_llama_2() -> tuple[Wrong, ...]:
    """The mistakes that matter for a model with as many KV heads as query heads and a head of its own."""
    return wrong_formulas(shape("llama-2-7b"), n_tokens=4096)


def without_scales(kv: str) -> Wrong:
    """The cache's numbers alone."""
    return mistake("scales_forgotten", LLAMA_8B, 1, kv_dtypes(kv))


def tied_twice(model: ModelShape) -> float:
    """Weight memory with the table counted again as the head."""
    return mistake("tied_head_twice", model, 1, BF16, "weight_bytes").value


@pytest.mark.parametrize("case", [*RIGHT, *WRONG, *FACTORS], ids=case_id)
def test_right_and_wrong_are_told_apart(case: Case) -> None:
    case.check()


def test_every_row_is_computed_or_left_out() -> None:
    check_ids(IDS, RIGHT)


def test_the_published_figures_are_off_by_what_was_said() -> None:
    """N02: 28 times, four for the bytes and seven for the heads. N04: 8 times. N06: a slip, not a unit."""
    eight_bytes = mistake("query_heads", QWEN, 1, EIGHT)
    assert (eight_bytes.factor, eight_bytes.value / per_token(QWEN)) == (7, 28)
    assert mistake("query_heads", LLAMA_2_70B, 2048, F16).factor == 8
    assert 26_700 <= pool_tokens(cache_only(64, 64, 128), 56e9 / 2**30) < pool_tokens(cache_only(64, 64, 128), 56)


@pytest.mark.parametrize(
    ("slug", "plain"), [("a100-sxm-80gb", 77.97e12), ("h100-sxm", 204.9e12), ("l4", 30.29e12), ("rtx-3090", 35.58e12)]
)
def test_rates_beside_the_matrix_units_are_in_no_field(slug: str, plain: float) -> None:
    """N08."""
    assert min(rate for _, rate in accelerator_named(slug).dense_flops) > 1.5 * plain
