"""Integers of few bits: every number within half a scale, stored in exactly the bytes that the formula says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.estimate.dtypes import DTYPES
from core.estimate.quantised import CacheScheme, Scheme
from core.lab.quantise import Codes, dequantise, in_groups, packed, quantise, rounded_up, unpacked
from core.refusal import Refusal

ROUNDING = 1e-5  # of fp32, relative to the group's largest number


def numbers(rows: int, width: int, seed: int, spread: float = 1.0, offset: float = 0.0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * spread + offset


def excess(matrix: Tensor, codes: Codes) -> float:
    """By how much the worst number misses the bound |w − ŵ| ≤ scale / 2; rounding of fp32 allowed for."""
    error = (matrix - dequantise(codes)).abs()
    slack = ROUNDING * matrix.abs().amax(-1, keepdim=True)
    return float((error - codes.scales.float()[..., None] / 2 - slack).max())


schemes = st.tuples(st.sampled_from([4, 8]), st.booleans(), st.integers(1, 33))


@given(schemes, st.integers(0, 10**6), st.floats(-30, 30), st.floats(-5, 5))
def test_every_number_is_within_half_a_scale(
    scheme: tuple[int, bool, int], seed: int, exponent: float, offset: float
) -> None:
    bits, has_zero, width = scheme
    matrix = numbers(5, width, seed, 2.0**exponent, offset * 2.0**exponent)
    codes = quantise(matrix, bits, has_zero=has_zero)
    assert excess(matrix, codes) <= 0
    low, high = (-8, 7) if bits == 4 else (-127, 127)
    assert low <= int(codes.integers.min()) and int(codes.integers.max()) <= high


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zero", [False, True])
def test_a_wrong_scale_is_caught(bits: int, has_zero: bool) -> None:
    """The bound fails where one group's scale is a quarter off: the test above can fail."""
    matrix = numbers(6, 32, 1)
    codes = quantise(matrix, bits, has_zero=has_zero)
    wrong = codes.scales.clone()
    wrong[3] *= 1.25
    assert excess(matrix, codes) <= 0 < excess(matrix, codes._replace(scales=wrong))


@pytest.mark.parametrize("bits", [4, 8])
def test_scales_use_the_whole_range(bits: int) -> None:
    """No scale is more than bf16's rounding above what the largest number needs."""
    matrix = numbers(64, 32, 2)
    needed = torch.maximum(matrix.amax(-1) / (7 if bits == 4 else 127), matrix.amin(-1) / (-8 if bits == 4 else -127))
    ratio = quantise(matrix, bits).scales.float() / needed
    assert float(ratio.min()) >= 1 and float(ratio.max()) <= 1 + 2**-7


def test_a_range_off_zero_needs_its_zero_point() -> None:
    matrix = numbers(8, 32, 3, 0.1, 5.0)
    with_zero, without = (quantise(matrix, 4, has_zero=has) for has in (True, False))
    assert with_zero.scales.float().mean() < without.scales.float().mean() / 10


def test_zeros_stay_zeros() -> None:
    for has_zero in (False, True):
        assert torch.equal(dequantise(quantise(torch.zeros(3, 8), 4, has_zero=has_zero)), torch.zeros(3, 8))


def test_scales_are_rounded_up() -> None:
    exact = torch.tensor([1.0, 0.5, 1.0 + 2**-7])
    assert torch.equal(rounded_up(exact).float(), exact)
    assert float(rounded_up(torch.tensor([1.0 + 2**-20]))) == 1 + 2**-7


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_two_in_a_byte_and_back(seed: int, half: int) -> None:
    integers = torch.randint(-8, 8, (3, 2 * half), dtype=torch.int8, generator=torch.Generator().manual_seed(seed))
    stored = packed(integers, 4)
    assert stored.nbytes == 3 * half and torch.equal(unpacked(stored, 4), integers)
    assert packed(torch.tensor([[-8, 7]], dtype=torch.int8), 4).item() == 0xF0


def test_the_last_group_is_filled_up_without_widening_it() -> None:
    matrix = numbers(4, 45, 5, offset=3.0)
    grouped = in_groups(matrix, 32)
    assert grouped.shape == (4, 2, 32) and torch.equal(grouped.flatten(1)[:, :45], matrix)
    assert torch.equal(grouped[:, 1].amax(-1), matrix[:, 32:].amax(-1))


@pytest.mark.parametrize(
    ("scheme", "width", "n_bytes"),
    [
        (Scheme(8, None), 577, 577 + 2),
        (Scheme(8, 32), 577, 19 * (32 + 2)),
        (Scheme(4, 32, has_zero=True), 576, 18 * (16 + 4)),
        (Scheme(4, 128), 576, 5 * (64 + 2)),
        (Scheme(4, None), 33, 17 + 2),
    ],
)
def test_bytes_of_a_row(scheme: Scheme, width: int, n_bytes: int) -> None:
    assert scheme.row_bytes(width) == n_bytes


def test_known_block_formats_are_schemes() -> None:
    """ggml's q4_0, q4_1 and q8_0 have the same bytes: groups of 32 with 16-bit scales."""
    same = {"q4_0": Scheme(4, 32), "q4_1": Scheme(4, 32, has_zero=True), "q8_0": Scheme(8, 32)}
    for name, scheme in same.items():
        assert scheme.dtype(576)[1:] == DTYPES[name][1:]


def test_what_is_not_served_is_refused() -> None:
    for bits, group in ((3, 32), (4, 0), (4, 31)):
        with pytest.raises(Refusal):
            Scheme(bits, group)  # type: ignore[arg-type]
    with pytest.raises(Refusal):
        CacheScheme(4, None, -1)


@pytest.mark.parametrize(("window", "group", "n", "m"), [(0, None, 9, 9), (4, None, 9, 5), (4, 4, 9, 4), (9, 4, 9, 0)])
def test_how_many_positions_are_integers(window: int, group: int | None, n: int, m: int) -> None:
    assert CacheScheme(8, group, window).n_quantised(n) == m
