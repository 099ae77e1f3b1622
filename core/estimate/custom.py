"""An accelerator of one's own, by its numbers, and whether one of them looks like a figure with 2:4 sparsity.

Vendors print the rate at which a matrix with two zeros in every four numbers is multiplied, twice the dense one, beside
it or instead of it. No language model here runs at it, and who divides by it sees half the utilisation that there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from re import fullmatch
from typing import NamedTuple

from core.estimate.accelerators import Accelerator, accelerators
from core.refusal import Refusal

CUSTOM = "custom"


class Number(NamedTuple):
    """A number of a custom accelerator: its unit in base units, and the range it may lie in, in its own unit."""

    unit: float
    least: float
    most: float
    default: float


# The word of the question → the number: memory in GiB, bandwidth in GB/s, dense peaks in TFLOP/s. An fp8 peak of 0 is
# none. The defaults are an H100 SXM's.
NUMBERS = {
    "card_memory": Number(2**30, 0.1, 100_000, 80),
    "card_bandwidth": Number(1e9, 0.1, 1_000_000, 3350),
    "card_bf16": Number(1e12, 0.001, 1_000_000, 989),
    "card_fp8": Number(1e12, 0, 1_000_000, 1979),
}
_SAME_RATE, _SAME_BANDWIDTH = 0.01, 0.1


def custom_accelerator(numbers: Mapping[str, float]) -> Accelerator:
    """The accelerator of these numbers, each in its own unit."""
    base = {name: numbers[name] * number.unit for name, number in NUMBERS.items()}
    peaks = [(kind, base[name]) for kind, name in (("bf16", "card_bf16"), ("fp8", "card_fp8")) if base[name]]
    return Accelerator(
        slug=CUSTOM,
        name="Custom",
        kind="gpu",
        form="",
        memory_bytes=int(base["card_memory"]),
        bandwidth_bytes_per_s=int(base["card_bandwidth"]),
        dense_flops=(*peaks, ("fp16", base["card_bf16"])),
    )


def custom_asked(words: Mapping[str, str]) -> Accelerator:
    """The custom accelerator that the words describe; what is not said is NUMBERS' default. Raises Refusal."""
    return custom_accelerator(
        {name: _read(name, words[name]) if name in words else number.default for name, number in NUMBERS.items()}
    )


def _read(name: str, word: str) -> float:
    number = NUMBERS[name]
    value = float(word) if fullmatch(r"[0-9]{1,7}(\.[0-9]{1,9})?", word) else -1.0
    if not number.least <= value <= number.most:
        raise Refusal("estimate.query_not_in_range", name=name, least=number.least, most=number.most, value=word[:40])
    return value


class Suspect(NamedTuple):
    """A peak that looks sparse: of which kind of number, in FLOP/s, and the card whose dense rate is half of it."""

    kind: str
    typed: float
    dense: float
    card: Accelerator


def looks_sparse(accelerator: Accelerator) -> Suspect | None:
    """The first peak that is twice a known card's dense one, where the bandwidth is that card's, or where no known card
    has such a dense peak.

    1,979 TFLOP/s in bf16 with 3,350 GB/s are an H100's sparse figure; as an fp8 peak they are its dense one.
    """
    for kind, typed in accelerator.dense_flops:
        rated = [(card, rate) for card in accelerators().values() for of, rate in card.dense_flops if of == kind]
        is_dense = any(_near(typed, rate, _SAME_RATE) for _, rate in rated)
        for card, rate in rated:
            is_same_card = _near(accelerator.bandwidth_bytes_per_s, card.bandwidth_bytes_per_s, _SAME_BANDWIDTH)
            if _near(typed, 2 * rate, _SAME_RATE) and (is_same_card or not is_dense):
                return Suspect(kind, typed, rate, card)
    return None


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * other
