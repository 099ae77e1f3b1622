"""What machine this is, in words and sizes that the system gives."""

from __future__ import annotations

import os
import platform
from collections import Counter
from functools import cache
from importlib import metadata
from pathlib import Path

from core.lab.roofs.record import Cache, Machine

CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@cache
def this_machine() -> Machine:
    """The machine and the device that models run on here. Raises Refusal when TBT_DEVICE names none that is there."""
    # Only now: torch takes seconds to import.
    from core.model.device import choose_device
    from core.model.products import available_cores

    device, processor = choose_device(os.environ.get("TBT_DEVICE") or None), processor_name()
    return Machine(
        processor=processor,
        n_cores=os.cpu_count() or 1,
        n_threads=available_cores(),
        torch=metadata.version("torch"),
        device=str(device.torch_device),
        device_name=device.name() or processor,
    )


def processor_name(described: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor calls itself, as far as the system passes it on."""
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), "") or platform.processor() or platform.machine() or "CPU"


def caches(cpus: Path = CPUS) -> tuple[Cache, ...] | None:
    """The processor's caches, smallest level first; None where the system does not describe them.

    Each core names the caches it reaches and who shares them; one that several share is counted once.
    """
    found: set[tuple[int, str, int, str]] = set()
    for index in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, kind, size, shared = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            )
            found.add((int(level), kind, _bytes(size), shared))
        except (OSError, ValueError):
            continue
    counts = Counter((level, kind, n_bytes) for level, kind, n_bytes, _ in found)
    return tuple(Cache(*described, count) for described, count in sorted(counts.items())) or None


def _bytes(size: str) -> int:
    """ "32K" as the kernel writes it, in bytes. Raises ValueError for anything else, and for a cache of nothing."""
    n_bytes = int(size[:-1]) * _UNITS[size[-1]] if size[-1:] in _UNITS else int(size)
    if n_bytes <= 0:
        raise ValueError("a cache of nothing")
    return n_bytes
