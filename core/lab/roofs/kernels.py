"""What runs under each roof: simple programs that must read, copy or multiply, and as little else as can be.

* read: "sum" adds up one block, "dot" multiplies two halves of it; the layouts of `core.model.products` ("fbgemm",
  "onednn", "plain") multiply a stack of matrices with one row each, as a decode step does.
* copy: "copy" moves one half of a block into the other.
* product: the same layouts multiply one matrix with many rows, as a prefill does.

Which is fastest depends on processor and library, so a roof is the best of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from core.model.device import DTYPES, Device
from core.model.products import BlockedProduct, HalfProduct, PlainProduct, pack

LAYOUTS: dict[str, type[HalfProduct] | type[BlockedProduct] | type[PlainProduct]] = {
    "fbgemm": HalfProduct,
    "onednn": BlockedProduct,
    "plain": PlainProduct,
}
STACKED = (4096, 2048)
"""[n_outputs, n_inputs] of the matrices that are read one after the other: calling them costs nothing beside it."""
_SMALLEST_BLOCK, _PASS_BYTES = 2**14, 2**26


class Kernel(NamedTuple):
    """A piece of work, and the bytes or FLOP in it."""

    work: Callable[[], object]
    amount: int


class Sizes(NamedTuple):
    """The matrix [width, width] of a product, and with how many rows it is tried."""

    width: int
    rows: tuple[int, ...]


CPU_SIZES, ACCELERATOR_SIZES = Sizes(2048, (64, 512)), Sizes(8192, (2048, 8192))


def layout_of(dtype_name: str, device: Device) -> str:
    """The layout in which the model keeps weights of that dtype here."""
    product = pack(torch.zeros(32, 32, device=device.torch_device), None, DTYPES[dtype_name])
    return next(name for name, layout in LAYOUTS.items() if isinstance(product, layout))


def reading(kernel: str, dtype_name: str, device: Device, n_bytes: int) -> Kernel:
    """Reads a block of so many bytes once."""
    if kernel not in LAYOUTS:
        block = _block(dtype_name, device, n_bytes)
        half = block.numel() // 2
        left, right = block[:half], block[half : 2 * half]
        return (
            Kernel(block.sum, block.nbytes)
            if kernel == "sum"
            else Kernel(lambda: torch.dot(left, right), 2 * left.nbytes)
        )
    dtype = DTYPES[dtype_name]
    weight = torch.full(STACKED, 1 / STACKED[1], device=device.torch_device)
    n_stacked = max(1, n_bytes // (weight.numel() * dtype.itemsize))
    # A clone each: a layout may keep the tensor it is given.
    stack = [LAYOUTS[kernel](weight.clone(), None, dtype) for _ in range(n_stacked)]
    row = torch.ones(1, STACKED[1], device=device.torch_device)  # (1, n_inputs)

    def multiply() -> None:
        for product in stack:
            product(row)

    return Kernel(multiply, sum(product.n_bytes for product in stack))


def copying(dtype_name: str, device: Device, n_bytes: int) -> Kernel:
    """Copies half a block of so many bytes: each of them is read or written once."""
    block = _block(dtype_name, device, n_bytes)
    half = block.numel() // 2
    source, target = block[:half], block[half : 2 * half]
    return Kernel(lambda: target.copy_(source), source.nbytes + target.nbytes)


def multiplying(kernel: str, dtype_name: str, device: Device, sizes: Sizes) -> list[Kernel]:
    """One matrix times rows [n, width], for each n."""
    weight = torch.full((sizes.width, sizes.width), 1 / sizes.width, device=device.torch_device)
    product = LAYOUTS[kernel](weight, None, DTYPES[dtype_name])
    # FBGEMM's layout takes fp32 rows; the others would spend time on turning rows into their dtype.
    row_dtype = torch.float32 if kernel == "fbgemm" else DTYPES[dtype_name]

    def times(n_rows: int) -> Kernel:
        rows = torch.ones(n_rows, sizes.width, dtype=row_dtype, device=device.torch_device)
        return Kernel(lambda: product(rows), 2 * n_rows * sizes.width**2)

    return [times(n_rows) for n_rows in sizes.rows]


def rereading(n_bytes: int) -> list[tuple[int, Kernel]]:
    """Blocks of 16 KiB and more, each twice the last up to `n_bytes`, read over and over by one sum."""
    return [(size, _again(size)) for size in (_SMALLEST_BLOCK << k for k in range(64)) if size <= n_bytes]


def _again(size: int) -> Kernel:
    block = _block("f32", Device(torch.device("cpu")), size)
    times = max(1, _PASS_BYTES // size)
    again = block.expand(times, -1)  # (n) → (times, n), the same memory in every row
    return Kernel(again.sum, times * size)


def _block(dtype_name: str, device: Device, n_bytes: int) -> torch.Tensor:
    dtype = DTYPES[dtype_name]
    return torch.ones(n_bytes // dtype.itemsize, dtype=dtype, device=device.torch_device)
