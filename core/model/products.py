"""A weight matrix and the fastest way found here to multiply with it.

A decode step is a handful of matrix–vector products; how the matrix lies in memory decides whether the processor reads
it at full speed. Measured on two AVX-512 cores, all products of SmolLM2-135M for one row, plain `F.linear` against
the layouts below: fp32 44 → 25 ms, bf16 19 → 13 ms, fp16 8.7 → 9.9 ms, and for 64 rows fp16 451 → 88 ms. So on an
x86 CPU:

* fp16 weights go into FBGEMM's layout and meet fp32 activations (nothing but the weights is rounded),
* fp32 and bf16 weights go into oneDNN's blocked layout,
* everything else (other processors, CUDA, MPS, training, counting FLOP) takes the plain product.

Both layouts are reached through operators that torch itself uses for its quantised and its compiled models; where a
build lacks them, `pack` falls back to the plain product. In both, a row's result does not depend on the rows beside it,
with one exception: on processors without AVX-512, FBGEMM adds up the products of one row, of two, and of more in three
orders, so that fp16 results differ by the rounding of fp32 sums. (Rows could be made up to three; a step for one row
would then take 16% longer there.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

# oneDNN lays the blocks out for an expected number of rows; measured for 1, 2, 4, 16 and 64 rows, a hint of 32 was
# best or equal at each of them.
EXPECTED_ROWS = 32
# From so many rows on, fp16 products are shared out over the cores; see `n_torch_threads`.
MANY_ROWS = 4


class Product(Protocol):
    """A matrix that can be multiplied with, whatever its layout."""

    n_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., n_inputs] → [..., n_outputs], in the dtype of `x`."""
        ...

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        """The matrix [n_outputs, n_inputs] as it is multiplied with, rounding included, and its bias."""
        ...


class PlainProduct:
    """The matrix as an ordinary tensor [n_outputs, n_inputs]; differentiable, and visible to torch's FLOP counter."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype)
        self.n_bytes = self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).to(x.dtype)

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias


class HalfProduct:
    """fp16 weights in FBGEMM's layout, multiplied with fp32 activations and summed in fp32.

    The outputs are shared out over torch's threads, as many as are set (`use_threads`).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float16) -> None:
        operators = torch.ops.quantized
        # FBGEMM rounds while it packs.
        self._packed = operators.linear_prepack_fp16(weight.float(), None if bias is None else bias.float())
        self._multiply = operators.linear_dynamic_fp16.default
        self.n_bytes = weight.numel() * dtype.itemsize

    def __call__(self, x: Tensor) -> Tensor:
        if x.dim() == 1:  # the operator wants rows
            return self(x[None])[0]
        # Else torch asks the packed weights for an override of the operator: 8 of a call's 11 µs, 121 times a step.
        with torch._C.DisableTorchFunctionSubclass():
            y: Tensor = self._multiply(x, self._packed)
        return y

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = torch.ops.quantized.linear_unpack_fp16(self._packed)
        return weight, bias


@cache
def available_cores() -> int:
    """Cores this process may use: TBT_THREADS where the operator sets it, else those the system gives it."""
    limit = os.environ.get("TBT_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(limit))) if limit.isdecimal() else cores


def n_torch_threads(dtype: torch.dtype, n_rows: int = 1) -> int:
    """How many threads torch's operators should use on the CPU in a pass of `n_rows` rows with weights of `dtype`.

    With few rows of fp16 one: all other operators are small, and the products gain 2 ms a step from a second core while
    it is free, but lose ten times that at their barriers when another program takes it. Many rows gain what a core
    brings (16 rows, two cores: 49 → 27 ms), as do fp32 and bf16 always.
    """
    few = n_rows < MANY_ROWS and dtype == torch.float16 and has_half_product()
    return 1 if few else available_cores()


def use_threads(dtype: torch.dtype, n_rows: int) -> None:
    """Sets the threads for what comes next in this thread; 0.2 µs, so every pass does it anew."""
    torch.set_num_threads(1 if _alone.is_set else n_torch_threads(dtype, n_rows))


class _Alone(threading.local):
    is_set = False


_alone = _Alone()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, in this thread, passes of any size use one thread: the other cores are at work on others."""
    before, _alone.is_set = _alone.is_set, True
    try:
        yield
    finally:
        _alone.is_set = before


class BlockedProduct:
    """fp32 or bf16 weights in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise NotImplementedError("this processor has no bf16 products")
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), EXPECTED_ROWS)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self._bias, self._dtype = None if bias is None else bias.to(dtype), dtype
        self.n_bytes = weight.numel() * dtype.itemsize

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._multiply(x.to(self._dtype), self._packed, self._bias, "none", [], "")
        return y.to(x.dtype)

    def unpacked(self) -> tuple[Tensor, Tensor | None]:
        return self._packed.to_dense(), self._bias


def pack(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Product:
    """The best layout for `weight` [n_outputs, n_inputs], on its device, rounded to `dtype`."""
    if weight.device.type == "cpu":
        if dtype == torch.float16 and has_half_product():
            return HalfProduct(weight, bias, dtype)
        if dtype in (torch.float32, torch.bfloat16) and has_blocked_product(dtype):
            return BlockedProduct(weight, bias, dtype)
    return PlainProduct(weight, bias, dtype)


@cache
def has_half_product() -> bool:
    """Whether FBGEMM's fp16 product works in this build of torch on this processor."""
    return _works(HalfProduct, torch.float16)


@cache
def has_blocked_product(dtype: torch.dtype) -> bool:
    """Whether oneDNN's blocked product works for `dtype` in this build of torch on this processor."""
    return _works(BlockedProduct, dtype)


def _works(product: type[HalfProduct] | type[BlockedProduct], dtype: torch.dtype) -> bool:
    """Tries the layout on a small matrix: it must run, and agree with the plain product."""
    weight = torch.arange(48.0).reshape(6, 8).sub(20).div(64)
    x = torch.linspace(-1, 1, 8).reshape(1, 8)
    try:
        return torch.allclose(product(weight, None, dtype)(x), x @ weight.T, atol=1e-2)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
