"""Which probes a machine's roofs are made of: one a roof, kernel, dtype and number of threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from core.lab.roofs.record import Cache, Machine, Roof

What = Roof | Literal["curve"]
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 128 * 2**20, 2**30
CACHES_A_BLOCK = 4
"""A block is so many times what the last cache holds: nothing of it is still there when it is read again."""
SHARE_OF_FREE = 8
"""Of the memory that is free a block takes one part in so many; packing matrices takes several times their own."""
UNKNOWN_CACHE_BYTES = 32 * 2**20
"""What the last cache is taken to hold where the system does not say: as much as those of common processors."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One process's work. `block_bytes` is what a read or copy walks over, and the curve's last block."""

    what: What
    kernel: str
    dtype: str
    n_threads: int
    device: str
    block_bytes: int


def block_bytes(caches: Iterable[Cache] | None, free_bytes: int | None, *, on_cpu: bool) -> int:
    """How much memory a read walks over: well above the last cache, at most a part of what is free."""
    last = max((cache.n_bytes for cache in caches or () if cache.kind != "Instruction"), default=UNKNOWN_CACHE_BYTES)
    wanted = min(max(LEAST_BLOCK_BYTES, CACHES_A_BLOCK * last), MOST_BLOCK_BYTES) if on_cpu else MOST_BLOCK_BYTES
    return wanted if free_bytes is None else min(wanted, free_bytes // SHARE_OF_FREE)


def thread_counts(n_threads: int) -> tuple[int, ...]:
    """1, 2, 4 … and all of them."""
    counts = []
    count = 1
    while count < n_threads:
        counts.append(count)
        count *= 2
    return (*counts, n_threads)


def probes_of(machine: Machine, block: int) -> tuple[Probe, ...]:
    """All probes in their order: reads, copies, products, and on a CPU the curve. Raises Refusal for no such device."""
    on_cpu = machine.device == "cpu"
    counts = thread_counts(machine.n_threads) if on_cpu else (1,)
    return tuple(
        Probe(what, kernel, dtype, n_threads, machine.device, block)
        for what, kernel, dtype in _works(machine.device)
        for n_threads in (counts if what != "curve" else (1,))
    )


def _works(device_name: str) -> Iterator[tuple[What, str, str]]:
    # Only now: torch takes seconds to import.
    from core.lab.roofs.kernels import layout_of
    from core.model.device import DTYPE_NAMES, DTYPES, choose_device, choose_dtype

    device = choose_device(device_name)
    usual = DTYPE_NAMES[choose_dtype(device)]
    yield from (("read", "sum", "f32"), ("read", "dot", "f32"))
    yield "read", layout_of(usual, device), usual
    yield "copy", "copy", "f32"
    for dtype in DTYPES:
        if not device.multiplies(DTYPES[dtype]):
            continue
        layout = layout_of(dtype, device)
        yield "product", layout, dtype
        if layout == "onednn":  # with many rows the plain product is sometimes the faster one
            yield "product", "plain", dtype
    if device.kind == "cpu":
        yield "curve", "sum", "f32"
