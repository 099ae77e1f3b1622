"""One probe: a process of its own that measures one thing and prints it as JSON.

`python -m core.lab.roofs.probe read sum f32 --threads 2 --device cpu --block-bytes 134217728`. In a process that has
done other work, threads, memory and clock are as that work left them; here they are new. With `--when-told` it prints
"ready" when all is prepared, and begins with the next line it is sent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from statistics import quantiles
from typing import Any

import torch

from core.lab.roofs.kernels import (
    ACCELERATOR_SIZES,
    CPU_SIZES,
    Kernel,
    copying,
    multiplying,
    reading,
    rereading,
)
from core.model.device import Device, choose_device

WARM_SECONDS, SECONDS, LEAST_REPEATS = 0.1, 0.3, 7
TOO_SLOW_SECONDS = 0.2
"""A product that takes so long with few rows is not tried with more of them."""
CURVE_SECONDS = 0.03


def main() -> None:
    """Reads what to measure, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m core.lab.roofs.probe")
    parser.add_argument("what", choices=("read", "copy", "product", "curve"))
    parser.add_argument("kernel")
    parser.add_argument("dtype")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--block-bytes", type=int, default=128 * 2**20)
    parser.add_argument("--when-told", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    with torch.inference_mode():
        measure = prepared(asked.what, asked.kernel, asked.dtype, asked.device, asked.block_bytes)
        if asked.when_told:
            print("ready", flush=True)
            sys.stdin.readline()
        print(json.dumps(measure()))


def prepared(what: str, kernel: str, dtype: str, device_name: str, block_bytes: int) -> Callable[[], dict[str, Any]]:
    """What is left to do when all is made that a probe works on.

    It gives what the probe prints: `rate` with `low` and `high`, in bytes or FLOP a second, or the points of the curve.
    """
    device = choose_device(device_name)
    if what == "curve":
        blocks = rereading(block_bytes)
        return lambda: {"curve": [[size, rates(device, work, CURVE_SECONDS)["rate"]] for size, work in blocks]}
    if what == "product":
        sizes = CPU_SIZES if device.kind == "cpu" else ACCELERATOR_SIZES
        kernels = multiplying(kernel, dtype, device, sizes)
    elif what == "copy":
        kernels = [copying(dtype, device, block_bytes)]
    else:
        kernels = [reading(kernel, dtype, device, block_bytes)]
    return lambda: fastest(device, kernels)


def fastest(device: Device, kernels: Iterable[Kernel]) -> dict[str, Any]:
    """The best of several sizes of the same product, by the median."""
    found = []
    for kernel in kernels:
        found.append(rates(device, kernel))
        if kernel.amount / found[-1]["rate"] > TOO_SLOW_SECONDS:
            break
    return max(found, key=lambda each: each["rate"])


def rates(device: Device, kernel: Kernel, seconds: float = SECONDS) -> dict[str, Any]:
    """A kernel's rate: median and quartiles of repeats over so many seconds, after some that do not count."""
    repeated(device, kernel.work, WARM_SECONDS * seconds / SECONDS, least=2)
    taken = repeated(device, kernel.work, seconds, least=LEAST_REPEATS)
    low, rate, high = quantiles([kernel.amount / each for each in taken], n=4, method="inclusive")
    return {"rate": rate, "low": low, "high": high, "n_repeats": len(taken)}


def repeated(device: Device, work: Callable[[], object], seconds: float, least: int) -> list[float]:
    """The seconds of every repeat."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while len(taken) < least or time.perf_counter() < until:
        taken.append(device.seconds_of(work))
    return taken


if __name__ == "__main__":
    main()
