"""The record of a machine's roofs: what was measured, where and when. Nothing in it changes once it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.estimate.floors import Floor

Roof = Literal["read", "copy", "product"]
ROOFS: tuple[Roof, ...] = ("read", "copy", "product")
KERNELS = ("sum", "dot", "copy", "fbgemm", "onednn", "plain")
"""What may run under a roof: see core.lab.roofs.kernels."""
DTYPE_NAMES = ("f32", "bf16", "f16")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where roofs hold: another processor, torch, device or number of threads has others.

    Attributes:
        processor: the CPU's name.
        n_cores: cores that the system has.
        n_threads: cores that this process may use.
        torch: the version of torch.
        device: "cpu", "cuda:0", "mps".
        device_name: the accelerator's name; the processor's on a CPU.
    """

    processor: str
    n_cores: int
    n_threads: int
    torch: str
    device: str
    device_name: str


@dataclass(frozen=True, slots=True)
class Cache:
    """One kind of cache as the system describes it: how many bytes each of them holds, and how many there are."""

    level: int
    kind: str
    n_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One roof by one kernel: the median of its repeats, with the quartiles around it.

    Attributes:
        roof: "read" and "copy" in bytes a second (a copied byte counts twice: it is read and written), "product" in
            FLOP a second.
        kernel: what ran, one of KERNELS.
        dtype: of the numbers it read or multiplied.
        n_threads: torch's threads; 1 on an accelerator, whose threads are its own.
        disturbed: whether other programs used the cores meanwhile, on every try; None where nobody knows.
    """

    roof: Roof
    kernel: str
    dtype: str
    n_threads: int
    rate: float
    low: float
    high: float
    n_repeats: int
    disturbed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """All readings of one machine.

    Attributes:
        measured_at: UTC, as ISO 8601.
        block_bytes: how much memory a read or copy walks over: several times what the last cache holds.
        caches: None where the system does not describe them.
        curve: (bytes of a block, bytes a second that one thread reads it at, over and over); empty on an accelerator.
    """

    measured_at: str
    machine: Machine
    block_bytes: int
    caches: tuple[Cache, ...] | None
    readings: tuple[Reading, ...]
    curve: tuple[tuple[int, float], ...]

    def best(self, roof: Roof, dtype: str | None = None) -> Reading | None:
        """The reading with the highest median, of all kernels and thread counts; None where nothing was measured."""
        found = [each for each in self.readings if each.roof == roof and dtype in (None, each.dtype)]
        return max(found, key=lambda each: each.rate, default=None)

    @property
    def read_bytes_per_s(self) -> float:
        """How fast memory is read."""
        return self._rate("read")

    @property
    def copy_bytes_per_s(self) -> float:
        """How many bytes a copy moves, read and written together."""
        return self._rate("copy")

    def peak_flops(self, dtype_name: str) -> float | None:
        """The FLOP/s of a matrix product with weights of that dtype; None where no product was measured for it."""
        best = self.best("product", dtype_name)
        return None if best is None else best.rate

    def floor(self, flops: float, bytes_read: float, dtype_name: str) -> Floor | None:
        """The least time for so many FLOP and bytes on these roofs; None for a dtype without a product."""
        peak = self.peak_flops(dtype_name)
        return None if peak is None else Floor(flops / peak, bytes_read / self.read_bytes_per_s)

    def _rate(self, roof: Roof) -> float:
        best = self.best(roof)
        assert best is not None  # `keep` and `from_json` take no record without it
        return best.rate
