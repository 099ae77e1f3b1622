"""An accelerator by its numbers, and the question whether one of them is a figure with 2:4 sparsity."""

from __future__ import annotations

import pytest

from core.estimate.accelerators import accelerators, peak_flops
from core.estimate.custom import NUMBERS, looks_sparse
from core.estimate.dtypes import DTYPES
from core.estimate.estimate import Request, estimate
from core.estimate.query import asked
from core.refusal import Refusal


def custom(**numbers: object) -> Request:
    words = {name: str(value) for name, value in numbers.items()}
    return asked({"model": "llama-3.1-8b", "accelerator": "custom", **words})[1]


def test_an_h100_by_its_numbers_is_an_h100() -> None:
    by_name = asked({"model": "llama-3.1-8b", "accelerator": "h100-sxm", "batch": "3"})
    by_number = asked({"model": "llama-3.1-8b", "accelerator": "custom", "batch": "3"})
    one, other = estimate(*by_name), estimate(*by_number)
    assert (one.fit, one.decode, one.prefill) == (other.fit, other.decode, other.prefill)


def test_numbers_are_in_their_units() -> None:
    card = custom(card_memory=24, card_bandwidth=936.5, card_bf16=71, card_fp8=0).accelerator
    assert card is not None and (card.memory_bytes, card.bandwidth_bytes_per_s) == (24 * 2**30, 936_500_000_000)
    assert peak_flops(card, DTYPES["bf16"]) == peak_flops(card, DTYPES["f16"]) == 71e12
    assert peak_flops(card, DTYPES["fp8"]) == 71e12  # has no rate of its own
    faster = custom(card_fp8=142).accelerator
    assert faster is not None and peak_flops(faster, DTYPES["fp8"]) == 142e12


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("word", ["-1", "nan", "inf", "1e3", "", "９", "1" * 9, "<b>"])
def test_absurd_numbers_are_refused(name: str, word: str) -> None:
    with pytest.raises(Refusal) as refused:
        custom(**{name: word})
    assert refused.value.key == "estimate.query_not_in_range" and name in str(refused.value)


def test_numbers_without_a_custom_card_are_refused() -> None:
    for card in ({}, {"accelerator": "h100-sxm"}, {"accelerator": "none"}):
        with pytest.raises(Refusal, match="card_bf16"):
            asked({"model": "llama-3.1-8b", "card_bf16": "989", **card})


@pytest.mark.parametrize(
    ("numbers", "kind", "slug"),
    [
        ({"card_bf16": 1979}, "bf16", "h100-sxm"),  # with an H100's 3,350 GB/s
        ({"card_bf16": 1978, "card_bandwidth": 3000}, "bf16", "h100-sxm"),
        ({"card_fp8": 3958}, "fp8", "h100-sxm"),
        ({"card_bf16": 624, "card_bandwidth": 2039, "card_fp8": 0}, "bf16", "a100-sxm-40gb"),
        ({"card_bf16": 1979, "card_bandwidth": 100}, "bf16", "h100-sxm"),  # nobody's dense rate, whatever the memory
        ({"card_bf16": 918, "card_bandwidth": 2765, "card_fp8": 0}, "bf16", "tpu-v5p"),  # another TPU's dense rate
    ],
)
def test_a_sparse_figure_is_questioned(numbers: dict[str, float], kind: str, slug: str) -> None:
    card = custom(**numbers).accelerator
    suspect = looks_sparse(card) if card else None
    assert suspect is not None and suspect.kind == kind and suspect.card.slug == slug
    assert suspect.typed == pytest.approx(2 * suspect.dense, rel=0.01)


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"card_bf16": 918, "card_fp8": 918, "card_bandwidth": 1638},
        {"card_bf16": 2250, "card_fp8": 4500, "card_bandwidth": 8000},
        {"card_bf16": 123.4, "card_fp8": 0, "card_bandwidth": 777},
    ],
)
def test_a_dense_figure_is_not(numbers: dict[str, float]) -> None:
    card = custom(**numbers).accelerator
    assert card is not None and looks_sparse(card) is None


def test_no_card_of_the_catalogue_looks_sparse() -> None:
    assert [slug for slug, card in accelerators().items() if looks_sparse(card)] == []
