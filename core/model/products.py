"""A weight matrix and the fastest way found here to multiply with it.

A decode step is a handful of matrix–vector products; how the matrix lies in memory decides whether the processor reads
it at full speed. Measured on two AVX-512 cores, all products of SmolLM2-135M for one row, plain `F.linear` against
the layouts below: fp32 44 → 25 ms, bf16 19 → 13 ms, fp16 8.7 → 9.9 ms, and for 64 rows fp16 451 → 136 ms. So on an
x86 CPU:

* fp16 weights go into FBGEMM's layout and meet fp32 activations (nothing but the weights is rounded),
* fp32 and bf16 weights go into oneDNN's blocked layout,
* everything else (other processors, CUDA, MPS, training, counting FLOP) takes the plain product.

Both layouts are reached through operators that torch itself uses for its own compiled graphs; where a build lacks
them, `pack` falls back to the plain product.
"""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

# oneDNN lays the blocks out for an expected number of rows; measured for 1, 2, 4, 16 and 64 rows, a hint of 32 was
# best or equal at each of them.
EXPECTED_ROWS = 32
ROWS_WORTH_A_THREAD = 8


class Product(Protocol):
    """A matrix that can be multiplied with, whatever its layout."""

    n_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., n_inputs] → [..., n_outputs], in the dtype of `x`."""
        ...


class PlainProduct:
    """The matrix as an ordinary tensor [n_outputs, n_inputs]; differentiable, and visible to torch's FLOP counter."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype)
        self.n_bytes = self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).to(x.dtype)


class HalfProduct:
    """fp16 weights in FBGEMM's layout, multiplied with fp32 activations and summed in fp32.

    FBGEMM's product runs in the thread that calls it. One row is read from memory as fast by one core as by two, and
    needs no second one; many rows are shared out over a pool of threads, one a core.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float16) -> None:
        self._packed = torch.fbgemm_pack_gemm_matrix_fp16(weight.float())  # FBGEMM rounds while it packs
        self._bias = None if bias is None else bias.float()
        self.n_bytes = weight.numel() * dtype.itemsize

    def __call__(self, x: Tensor) -> Tensor:
        n_rows = x.numel() // x.shape[-1]
        n_parts = min(available_cores(), n_rows // ROWS_WORTH_A_THREAD)
        if n_parts < 2:
            return self._multiply(x)
        parts = x.flatten(0, -2).tensor_split(n_parts)
        others = [half_pool().submit(self._multiply, part) for part in parts[1:]]
        mine = self._multiply(parts[0])
        return torch.cat([mine, *(other.result() for other in others)]).view(*x.shape[:-1], -1)

    @torch.inference_mode()
    def _multiply(self, x: Tensor) -> Tensor:
        return torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._packed, self._bias)


@cache
def half_pool() -> ThreadPoolExecutor:
    """The threads that share out large fp16 products, beside the one that asks."""
    return ThreadPoolExecutor(max(1, available_cores() - 1), thread_name_prefix="half-product")


@cache
def available_cores() -> int:
    """Cores this process may use: TBT_THREADS where the operator sets it, else those the system gives it."""
    limit = os.environ.get("TBT_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(limit))) if limit.isdecimal() else cores


def n_torch_threads(dtype: torch.dtype) -> int:
    """How many threads torch's own operators should use on the CPU for weights of `dtype`.

    With FBGEMM's fp16 products one: what is left is small, and a barrier of two threads costs more than it brings
    (12.8 against 13.6 ms a decode step alone, and twenty times that when another program takes one of the cores).
    """
    return 1 if dtype == torch.float16 and has_half_product() else available_cores()


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
    with warnings.catch_warnings():
        # torch says once a process that FBGEMM's operators will move; the version is pinned, and a torch without
        # them is found out right here.
        warnings.simplefilter("ignore")
        try:
            return torch.allclose(product(weight, None, dtype)(x), x @ weight.T, atol=1e-2)
        except (RuntimeError, AttributeError, NotImplementedError):
            return False
