"""Matrices of integers, and the fastest way to multiply with them that plain torch has here.

On a CPU:

* int8, a scale a row: `torch._int_mm`, whose sums of integers are exact. It takes integers on both sides, so each row
  of activations becomes two of them, 16 bits in all: what is rounded is the weights. The scale follows behind the sum.
* int4 in groups: torch's `_weight_int4pack_mm_for_cpu`, which unpacks in registers. It is written for bf16 activations
  and gives bf16 back (its fp32 version is a hundred times slower), so sums are rounded to 8 bits of mantissa. It wants
  a zero point beside each scale: where a scheme has none, these pairs are written anew for every product.

Everything else (int8 in groups, other devices, rows left over from sixteens) is turned back into ordinary numbers for
every product, some rows at a time: the bytes are saved all the same, the time is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from core.estimate.quantised import GROUPS, INT8_ROWS, Scheme
from core.lab.quantise import Codes, dequantise, in_groups, packed, quantise, unpacked
from core.model.products import Product

ROWS_AT_A_TIME = 4096
"""So many rows of a matrix are ordinary numbers at once."""
ROWS_OF_KERNEL = 16
"""torch's 4-bit product takes rows by sixteens."""
_HIGH = 256


class Dequantised:
    """Integers as they are packed, turned into ordinary numbers for every product."""

    def __init__(self, codes: Codes, scheme: Scheme, width: int) -> None:
        """`codes` of [n_outputs, groups, g]."""
        self._stored = packed_rows(codes.integers, scheme)
        self._scales, self._zeros = codes.scales, codes.zeros
        self._scheme, self._width = scheme, width
        held = (self._stored, self._scales, *(() if self._zeros is None else (self._zeros,)))
        self.n_bytes = sum(tensor.nbytes for tensor in held)

    def __call__(self, x: Tensor) -> Tensor:
        n_outputs = self._stored.shape[0]
        starts = range(0, n_outputs, ROWS_AT_A_TIME)
        parts = [F.linear(x, self._rows(start, start + ROWS_AT_A_TIME).to(x.dtype)) for start in starts]
        return torch.cat(parts, -1)

    def _rows(self, start: int, end: int) -> Tensor:
        stored, scales, zeros = Codes(self._stored, self._scales, self._zeros).rows(start, end)
        integers = unpacked(stored, self._scheme.bits)
        integers = integers[..., : self._scheme.group or self._width]  # an odd row's last half byte holds nothing
        return dequantise(Codes(integers, scales, zeros)).flatten(1)[:, : self._width]

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        return self._rows(0, self._stored.shape[0]), None


class Int8Rows:
    """int8 [n_outputs, n_inputs] with a scale a row, multiplied as integers."""

    def __init__(self, codes: Codes) -> None:
        """`codes` of [n_outputs, 1, n_inputs]."""
        self._integers, self._scales = codes.integers[:, 0], codes.scales[:, 0]
        self.n_bytes = self._integers.nbytes + self._scales.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        step = torch.linalg.vector_norm(rows, torch.inf, -1, keepdim=True).div_(127).clamp_min_(1e-30)
        scaled = rows / step
        high = scaled.round()
        low = scaled.sub_(high).mul_(_HIGH).clamp_(-127, 127).round_()  # (rows, n_inputs): what `high` leaves out
        sums, fine = (torch._int_mm(part.to(torch.int8), self._integers.mT) for part in (high, low))
        y: Tensor = torch.add(sums.to(x.dtype), fine, alpha=1 / _HIGH).mul_(step).mul_(self._scales)
        return y.view(*x.shape[:-1], -1)

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        return dequantise(Codes(self._integers, self._scales, None)), None


class Int4Groups:
    """4-bit integers in groups, in the layout of torch's own product; outputs by sixteens."""

    def __init__(self, codes: Codes, scheme: Scheme, width: int) -> None:
        n_groups, self._group = codes.integers.shape[1:]
        self._padding, self._has_zero = n_groups * self._group - width, scheme.has_zero
        pieces = (codes.integers.flatten(1) + 8).split(ROWS_AT_A_TIME)  # in int32 a piece at a time
        convert = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self._packed = torch.cat([convert(piece.int(), 1) for piece in pieces])  # (n_outputs, groups·g / 2)
        scales = codes.scales.T  # (n_outputs, groups) → (groups, n_outputs)
        self._scales = scales.contiguous() if codes.zeros is None else torch.stack([scales, codes.zeros.T], -1)
        self.n_bytes = self._packed.nbytes + self._scales.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        rows = F.pad(x.reshape(-1, x.shape[-1]).bfloat16(), (0, self._padding))
        pairs = self._scales if self._has_zero else F.pad(self._scales[..., None], (0, 1))
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self._packed, self._group, pairs)
        return y.to(x.dtype).view(*x.shape[:-1], -1)

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        width = self._packed.shape[1] * 2 - self._padding
        return self(torch.eye(width)).T, None  # (n_inputs, n_outputs) → (n_outputs, n_inputs), rounded to bf16


class Stacked:
    """Products whose outputs stand one behind another, and the bias of all of them."""

    def __init__(self, parts: Sequence[Product], bias: Tensor | None = None) -> None:
        self._parts, self._bias = parts, bias
        self.n_bytes = sum(part.n_bytes for part in parts)

    def __call__(self, x: Tensor) -> Tensor:
        y = self._parts[0](x) if len(self._parts) == 1 else torch.cat([part(x) for part in self._parts], -1)
        return y if self._bias is None else y + self._bias.to(y.dtype)

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        return torch.cat([part.unpacked()[0] for part in self._parts]), self._bias


def packed_rows(integers: Tensor, scheme: Scheme) -> Tensor:
    """Integers [n_outputs, groups, g] as they are stored; an odd number of 4 bits leaves half a byte empty."""
    if scheme.bits == 4 and integers.shape[-1] % 2:
        integers = F.pad(integers, (0, 1))
    return packed(integers, scheme.bits)


def pack_quantised(weight: Tensor, bias: Tensor | None, scheme: Scheme) -> Product:
    """The fastest product of a matrix [n_outputs, n_inputs] rounded to `scheme`, on its device."""
    width = weight.shape[1]
    codes = quantise(in_groups(weight, scheme.group), scheme.bits, has_zero=scheme.has_zero)
    if weight.device.type == "cpu" and scheme == INT8_ROWS and width > 1 and has_integer_product():
        return Stacked([Int8Rows(codes)], bias)
    n_fast = 0
    if weight.device.type == "cpu" and scheme.bits == 4 and scheme.group in GROUPS and has_int4_product():
        n_fast = weight.shape[0] // ROWS_OF_KERNEL * ROWS_OF_KERNEL
    parts: list[Product] = []
    if n_fast:
        parts.append(Int4Groups(codes.rows(0, n_fast), scheme, width))
    if n_fast < weight.shape[0]:
        parts.append(Dequantised(codes.rows(n_fast, weight.shape[0]), scheme, width))
    return Stacked(parts, bias)


@cache
def has_integer_product() -> bool:
    """Whether torch multiplies int8 matrices on this processor, and gets them right."""
    return _works(lambda codes, _: Int8Rows(codes), INT8_ROWS)


@cache
def has_int4_product() -> bool:
    """Whether torch's 4-bit product works in this build on this processor."""
    scheme = Scheme(4, GROUPS[0], has_zero=True)
    return _works(lambda codes, width: Int4Groups(codes, scheme, width), scheme)


def _works(make: Callable[[Codes, int], Product], scheme: Scheme) -> bool:
    """Tries it on a small matrix against the same integers turned back."""
    weight = torch.linspace(-1, 1, 16 * 64).sin().reshape(16, 64)
    x = torch.linspace(-1, 1, 64).reshape(1, 64)
    codes = quantise(in_groups(weight, scheme.group), scheme.bits, has_zero=scheme.has_zero)
    try:
        expected = Dequantised(codes, scheme, 64)(x)
        return torch.allclose(make(codes, 64)(x), expected, rtol=2e-2, atol=2e-2)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
