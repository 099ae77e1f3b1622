"""How long the estimator takes: all figures at one point, a sweep over 10,000 contexts, the whole command."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape as shape_named
from core.estimate.dtypes import BF16_WEIGHTS
from core.estimate.estimate import Request, estimate, estimate_json
from core.estimate.flops import decode_flops, decode_flops_chapter, prefill_flops, prefill_flops_chapter
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.estimate.weights import weight_bytes_read

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("llama-3.1-8b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v3")
BATCH, POINTS, ROUNDS = 4, 10_000, 9


def report_estimates() -> None:
    """Measures and prints; contexts differ from call to call, so that no figure is merely remembered."""
    print(f"\nestimates, batch {BATCH}, on h100-sxm; medians of {ROUNDS} rounds")
    for slug in MODELS:
        report_model(slug, shape_named(slug))
    command = [sys.executable, "-m", "core", "estimate", "--model", MODELS[0], "--accelerator", "h100-sxm", "--json"]
    print(f"  the command, start to end {median(lambda: run(command)) * 1e3:.0f} ms (500 ms)")


def report_model(slug: str, shape: ModelShape) -> None:
    """One line for one model."""
    card = accelerator_named("h100-sxm")
    requests = [Request(batch=BATCH, context=1000 + step, accelerator=card) for step in range(100)]
    one = median(lambda: [estimate(shape, request) for request in requests]) / len(requests)
    as_json = median(lambda: [estimate_json(estimate(shape, request)) for request in requests]) / len(requests)
    points = median(lambda: sweep(shape))
    print(
        f"  {slug:<14} one estimate {one * 1e6:6.1f} µs, as JSON {as_json * 1e6:6.1f} µs (200 µs)"
        f"   {POINTS:,} points {points * 1e3:5.2f} ms (50 ms)"
    )


def sweep(shape: ModelShape) -> None:
    """Memory, compute and bytes of both phases at every context."""
    n = np.arange(1, POINTS + 1)
    kv_bytes(shape, n_tokens=n, batch=BATCH)
    decode_flops(shape, n, BATCH)
    decode_flops_chapter(shape, n, BATCH)
    prefill_flops(shape, n, BATCH)
    prefill_flops(shape, n, BATCH, causal=True)
    prefill_flops_chapter(shape, n, BATCH)
    weight_bytes_read(shape, BF16_WEIGHTS, BATCH * n)


def run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def median(work: Callable[[], object]) -> float:
    """Seconds."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
