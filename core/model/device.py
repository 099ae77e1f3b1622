"""The one seam between the lab and the hardware: which device, which dtype, and clocks that wait for it.

Work on a GPU is queued; a clock read before the queue is empty shows the time of queueing. Everything that times goes
through `Device.synchronize`, and tests put a fake in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from core.model.products import has_half_product
from core.refusal import Refusal

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Device:
    """A torch device, and how to wait for it and ask for its memory."""

    torch_device: torch.device

    @property
    def kind(self) -> str:
        """ "cpu", "cuda" or "mps"."""
        return self.torch_device.type

    def synchronize(self) -> None:
        """Waits until everything queued on the device is done; a CPU has no queue."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.torch_device)
        elif self.kind == "mps":
            torch.mps.synchronize()

    def name(self) -> str:
        """What an accelerator calls itself; empty for a CPU."""
        if self.kind == "cuda":
            return torch.cuda.get_device_name(self.torch_device)
        return "" if self.kind == "cpu" else self.kind.upper()

    def multiplies(self, dtype: torch.dtype) -> bool:
        """Whether a matrix product of that dtype works on it: a small one is tried."""
        try:
            square = torch.ones(8, 8, dtype=dtype, device=self.torch_device)
            return bool((square @ square).sum() == square.numel() * len(square))
        except (RuntimeError, TypeError, NotImplementedError):
            return False

    def seconds_of(self, work: Callable[[], object]) -> float:
        """Seconds that `work` takes on the device: by its own events on CUDA, by the clock elsewhere.

        An event is a mark in the queue, so that the way of a command to the device is not part of what is timed.
        """
        if self.kind != "cuda":
            with Stopwatch(self) as watch:
                work()
            return watch.seconds
        with torch.cuda.device(self.torch_device):
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            work()
            ended.record()
            ended.synchronize()
            milliseconds: float = began.elapsed_time(ended)
        return milliseconds / 1000

    def free_memory_bytes(self) -> int | None:
        """Bytes a model could still take on the device; None where the system does not say."""
        if self.kind == "cuda":
            return torch.cuda.mem_get_info(self.torch_device)[0]
        known = [free for free in (_available_bytes(), _container_bytes()) if free is not None]
        return min(known, default=None)

    def reset_peak_memory(self) -> None:
        """Starts a new peak; only CUDA keeps one."""
        if self.kind == "cuda":
            torch.cuda.reset_peak_memory_stats(self.torch_device)

    def allocated_memory_bytes(self) -> int | None:
        """Bytes allocated on the device now; None where the device does not keep count."""
        return torch.cuda.memory_allocated(self.torch_device) if self.kind == "cuda" else None

    def peak_memory_bytes(self) -> int | None:
        """The most bytes allocated on the device since the last reset; None where the device does not keep count."""
        return torch.cuda.max_memory_allocated(self.torch_device) if self.kind == "cuda" else None


def _available_bytes() -> int | None:
    """What Linux says a program could still take without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kibibytes = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    return None if kibibytes is None else kibibytes * 1024


def _container_bytes(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What is left of the limit that a container's control group sets; None where there is none."""
    try:
        most, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(0, int(most) - int(used)) if most.isdecimal() and used.isdecimal() else None


@dataclass
class Stopwatch:
    """Seconds of what runs inside `with Stopwatch(device) as watch`, the device's queue drained at both ends."""

    device: Device
    clock: Callable[[], float] = time.perf_counter
    seconds: float = field(default=0.0, init=False)
    _started: float = field(default=0.0, init=False)

    def __enter__(self) -> Stopwatch:
        self.device.synchronize()
        self._started = self.clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.device.synchronize()
        self.seconds = self.clock() - self._started


def choose_device(requested: str | None = None) -> Device:
    """The named device ("cpu", "cuda", "cuda:1", "mps"), else CUDA if there, else MPS, else the CPU.

    Raises Refusal when the name is unknown or the device is not there.
    """
    if requested is None:
        accelerators = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        requested = next((kind for kind, is_there in accelerators.items() if is_there), "cpu")
    kind, _, index = requested.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdecimal()):
        raise Refusal("engine.device_unknown", device=requested[:40])
    there = {
        "cpu": not index,
        "cuda": torch.cuda.is_available() and int(index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available() and not index,
    }
    if not there[kind]:
        raise Refusal("engine.device_missing", device=requested)
    return Device(torch.device(requested))


def choose_dtype(device: Device, requested: str | None = None) -> torch.dtype:
    """The named dtype ("f32", "bf16", "f16"), else what decodes fastest on the device.

    On an x86 CPU that is fp16 through FBGEMM (measured on SmolLM2: 1.3 times bf16, 2.4 times fp32, and it works
    without AVX-512); other CPUs multiply halves slowly and get fp32. Raises Refusal for an unknown name.
    """
    if requested is not None:
        if requested not in DTYPES:
            raise Refusal("engine.dtype_unknown", dtype=requested[:40], known=", ".join(DTYPES))
        return DTYPES[requested]
    if device.kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if device.kind == "mps":
        return torch.float16
    return torch.float16 if has_half_product() else torch.float32
