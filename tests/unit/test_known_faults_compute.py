"""What other calculators got wrong about compute and speed, entry by entry, and the right value."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from core.engine.trace import Recorded, Sampled, StepEvent, Trace
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.dtypes import WeightDtypes
from core.estimate.estimate import Request, estimate, estimate_json
from core.estimate.flops import (
    attended_pairs,
    attention_costs,
    decode_flops,
    head_flops,
    prefill_flops,
    weights_multiplied,
)
from core.estimate.observed import against_floor
from core.estimate.traffic import Pass, operators
from core.estimate.weights import weight_bytes, weight_bytes_read
from core.estimate.wrong import wrong_formulas

LLAMA_8B, BF16 = shape("llama-3.1-8b"), WeightDtypes()


@pytest.mark.parametrize(
    ("slug", "achieved", "share", "faulty"), [("h200-sxm", 420e12, 42.4, 21.2), ("h100-sxm", 480e12, 48.5, 24.3)]
)
def test_a05_peaks_are_dense(slug: str, achieved: float, share: float, faulty: float) -> None:
    peak = dict(accelerator_named(slug).dense_flops)["bf16"]
    assert achieved / peak * 100 == pytest.approx(share, abs=0.1)
    assert achieved / (2 * peak) * 100 == pytest.approx(faulty, abs=0.1)


def test_a05_the_form_decides() -> None:
    pcie, sxm = accelerator_named("h100-pcie"), accelerator_named("h100-sxm")
    assert dict(pcie.dense_flops)["bf16"] == 756.5e12 and dict(sxm.dense_flops)["bf16"] == pytest.approx(
        989e12, rel=1e-3
    )
    assert (pcie.form, sxm.form) == ("PCIe", "SXM")


def attention_flops(n_tokens: int, causal: bool) -> int:
    """Scores and weighted sums of Llama-3.1-8B's prefill."""
    (cost,) = attention_costs(LLAMA_8B, absorbed=False)
    return int(2 * cost.multiply_adds * attended_pairs(n_tokens, 0, pairs="causal" if causal else "square"))


def test_a06_the_mask_halves_the_square_almost() -> None:
    assert attention_flops(2048, causal=False) == 2_199_023_255_552
    assert attention_flops(2048, causal=True) == 1_100_048_498_688 > 2_199_023_255_552 // 2
    difference = prefill_flops(LLAMA_8B, 2048) - prefill_flops(LLAMA_8B, 2048, causal=True)
    assert difference == 2_199_023_255_552 - 1_100_048_498_688
    assert prefill_flops(LLAMA_8B, 1) == prefill_flops(LLAMA_8B, 1, causal=True)


def test_a06_both_counts_are_told_apart() -> None:
    told = estimate_json(estimate(LLAMA_8B, Request(context=2048, batch=3)))["prefill"]
    assert told["flops_exact"] == 3 * prefill_flops(LLAMA_8B, 2048)
    assert told["flops_exact_causal"] == 3 * prefill_flops(LLAMA_8B, 2048, causal=True)


def test_a08_tying_changes_bytes_not_compute() -> None:
    tied = replace(LLAMA_8B, tied_head=True)
    assert head_flops(LLAMA_8B) == head_flops(tied) == 1_050_673_152
    assert 2 * weights_multiplied(LLAMA_8B)[0] == 13_958_643_712
    assert decode_flops(LLAMA_8B, 8192) == decode_flops(tied, 8192) == 19_304_284_160
    assert decode_flops(LLAMA_8B, 8192) - decode_flops(LLAMA_8B, 0) == 4_294_967_296
    assert weight_bytes(LLAMA_8B, BF16) - weight_bytes(tied, BF16) == 2 * 4096 * 128_256
    assert weight_bytes_read(LLAMA_8B, BF16, 1) == weight_bytes_read(tied, BF16, 1)
    wrong = {one.name: one.value for one in wrong_formulas(tied, n_tokens=8192) if one.quantity == "decode_flops"}
    assert wrong["look_up_as_product"] == 19_304_284_160 + 1_050_673_152
    assert wrong["tied_head_dropped"] == 19_304_284_160 - 1_050_673_152


def step(seconds: float) -> StepEvent:
    """A step that took so long and produced a token."""
    nothing: dict[str, Any] = {one.name: 0 for one in fields(Sampled)}
    counts: dict[str, Any] = {one.name: 0 for one in fields(StepEvent)}
    return StepEvent(**counts | {"seconds": seconds, "sampled": Sampled(**nothing), "recorded": Recorded()})


def test_a16_n_tokens_are_n_minus_one_decode_steps() -> None:
    """100 tokens, the first after 1 s and the last after 5: 99 in 4 s, not 100 in 5."""
    trace = Trace(prompt_ids=(1,), steps=(step(1.0), *[step(4 / 99)] * 99), text="", stopped=None)
    assert trace.time_to_first_token_s == 1
    assert trace.time_per_output_token_s is not None
    assert 1 / trace.time_per_output_token_s == pytest.approx(24.75)


def test_a17_a_floor_is_no_forecast() -> None:
    """16.1 ms against a floor of 7.0 is slow, not wrong; less than the floor is impossible, and is said to be."""
    slow, impossible = against_floor(16.1e-3, 7.0e-3), against_floor(6.9e-3 * 0.9, 6.9e-3)
    assert slow.ratio == pytest.approx(2.3) and slow.is_possible
    assert impossible.ratio == pytest.approx(0.9) and not impossible.is_possible
    assert against_floor(7.0e-3, 7.0e-3).is_possible


def test_a19_one_row_of_logits_is_enough() -> None:
    head = operators(LLAMA_8B, Pass(8192, activation_bytes=4))[-1]
    assert head.activations_written == 513_024 and 8192 * 513_024 == 4_202_692_608
    assert (head_flops(LLAMA_8B), head_flops(LLAMA_8B, 2048)) == (1_050_673_152, 2_151_778_615_296)
    all_rows = prefill_flops(LLAMA_8B, 2048) - head_flops(LLAMA_8B) + head_flops(LLAMA_8B, 2048)
    assert all_rows - prefill_flops(LLAMA_8B, 2048) == 2047 * 1_050_673_152
