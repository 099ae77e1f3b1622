"""Numbers as integers of few bits: w ≈ (code)·scale + zero, one scale for each group along the last axis.

A scale is rounded up to bf16 before the integers are found, and a zero point before the scale, so that no number is
cut off and each is at most half a scale away from what it stands for.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from core.estimate.quantised import Bits

LOWEST = {4: -8, 8: -127}
HIGHEST = {4: 7, 8: 127}
_TINY = 2.0**-126  # the smallest normal bf16: a group of zeros needs a scale that one can divide by


class Codes(NamedTuple):
    """Integers [..., g] as int8, their scales [...] in bf16, and where there are any their zero points [...]."""

    integers: Tensor
    scales: Tensor
    zeros: Tensor | None

    def rows(self, start: int, end: int) -> Codes:
        """Those of some rows along the first axis."""
        zeros = None if self.zeros is None else self.zeros[start:end]
        return Codes(self.integers[start:end], self.scales[start:end], zeros)


def quantise(numbers: Tensor, bits: Bits, *, has_zero: bool = False) -> Codes:
    """Integers for groups of numbers [..., g], each group along the last axis with a scale of its own.

    Without `has_zero` 0 stays 0. With it the group's range is laid on the integers' range: a quarter to half the error
    where numbers lie on one side of zero.
    """
    low, high = LOWEST[bits], HIGHEST[bits]
    numbers = numbers.float()
    smallest, largest = torch.aminmax(numbers, dim=-1)
    zeros = None
    if has_zero:
        zeros = ((smallest * high - largest * low) / (high - low)).bfloat16()
        smallest, largest = smallest - zeros.float(), largest - zeros.float()
    needed = torch.maximum(smallest / low, largest / high).clamp_min(_TINY)
    scales = rounded_up(needed)
    shifted = numbers if zeros is None else numbers - zeros.float()[..., None]
    integers = (shifted / scales.float()[..., None]).round_().clamp_(low, high).to(torch.int8)
    return Codes(integers, scales, zeros)


def dequantise(codes: Codes) -> Tensor:
    """The numbers that the integers stand for: fp32 [..., g]."""
    numbers = codes.integers.float().mul_(codes.scales.float()[..., None])
    return numbers if codes.zeros is None else numbers.add_(codes.zeros.float()[..., None])


def rounded_up(numbers: Tensor) -> Tensor:
    """The smallest bf16 that is not below each positive fp32 number."""
    bits = numbers.contiguous().view(torch.int32)
    cut: Tensor = ((bits + 0xFFFF) & ~0xFFFF).view(torch.float32)
    return cut.bfloat16()


def packed(integers: Tensor, bits: Bits) -> Tensor:
    """As they are stored: int8 [..., g] as they are, or two of 4 bits in a byte, uint8 [..., g / 2], the first low."""
    if bits == 8:
        return integers
    pairs: Tensor = (integers + 8).to(torch.uint8).unflatten(-1, (-1, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpacked(stored: Tensor, bits: Bits) -> Tensor:
    """The integers again, int8 [..., g]."""
    if bits == 8:
        return stored
    both = torch.stack([stored & 15, stored >> 4], -1).flatten(-2)  # (..., g / 2) → (..., g)
    return both.to(torch.int8).sub_(8)


def in_groups(matrix: Tensor, group: int | None) -> Tensor:
    """Rows [n, width] as whole groups [n, groups, g]; the last is filled up with the row's last number, which widens
    no group's range."""
    width = matrix.shape[-1]
    missing = -width % (group or width)
    if missing:
        matrix = torch.cat([matrix, matrix[..., -1:].expand(*matrix.shape[:-1], missing)], -1)
    grouped: Tensor = matrix.unflatten(-1, (-1, group or width))
    return grouped
