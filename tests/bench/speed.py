"""Decode and prefill times of both sides, measured in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from statistics import median

import torch
from transformers import PreTrainedModel

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.model.device import DTYPES
from core.model.load import LanguageModel, load_model, smollm2_file
from core.model.products import available_cores, n_torch_threads
from tests.bench.bandwidth import ReadBandwidth
from tests.peer import load_gguf


@dataclass
class Speed:
    """Seconds of every round: of a prefill, and of one decode step (a round's mean)."""

    prompt_tokens: int
    bytes_per_step: int = 0
    prefill_all: list[float] = field(default_factory=list)
    decode_all: list[float] = field(default_factory=list)

    @property
    def prefill_s(self) -> float:
        return median(self.prefill_all)

    @property
    def decode_s(self) -> float:
        return median(self.decode_all)


def measure(dtype: str, prompt_tokens: int, n_new: int, rounds: int, bandwidth: ReadBandwidth) -> tuple[Speed, Speed]:
    """Ours and transformers' on the same prompt, alternating; one unmeasured round each first.

    Both may use all cores: transformers through torch's threads, ours as `load_model` sets them.
    """
    model, peer = load_model("smollm2", device="cpu", dtype=dtype), transformers_model(dtype)
    prompt = torch.randint(0, 40_000, (prompt_tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    ours, theirs = Speed(prompt_tokens), Speed(prompt_tokens)
    sides: tuple[tuple[Speed, int, Callable[[], tuple[float, float]]], ...] = (
        (ours, n_torch_threads(DTYPES[dtype]), lambda: our_round(model, prompt, n_new, ours)),
        (theirs, available_cores(), lambda: transformers_round(peer, prompt, n_new)),
    )
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds + 1):
            torch.set_num_threads(available_cores())
            bandwidth.read_once()
            for speed, n_threads, run_round in sides:
                torch.set_num_threads(n_threads)
                prefill_s, decode_s = run_round()
                if number:
                    speed.prefill_all.append(prefill_s)
                    speed.decode_all.append(decode_s)
    finally:
        gc.enable()
    return ours, theirs


def our_round(model: LanguageModel, prompt: list[int], n_new: int, speed: Speed) -> tuple[float, float]:
    """The engine as everybody uses it: record, sampling and all."""
    started = time.perf_counter()
    run = Run(model, prompt, RunConfig(max_new=n_new + 1))
    steps = generate(model, run)
    first = next(steps)
    prefilled = time.perf_counter()
    decoded = list(steps)
    decode_s = (time.perf_counter() - prefilled) / len(decoded)
    speed.bytes_per_step = decoded[-1].weight_bytes_read + (first.kv_bytes + decoded[-1].kv_bytes) // 2
    return prefilled - started, decode_s


def transformers_round(peer: PreTrainedModel, prompt: list[int], n_new: int) -> tuple[float, float]:
    """`generate` for 1 token (the prefill) and for n_new + 1; the difference is n_new decode steps."""
    ids = torch.tensor([prompt])
    times = []
    for count in (1, n_new + 1):
        started = time.perf_counter()
        with torch.inference_mode():
            peer.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        times.append(time.perf_counter() - started)
    return times[0], (times[1] - times[0]) / n_new


def transformers_model(dtype: str) -> PreTrainedModel:
    """The same GGUF file in transformers, with its default attention."""
    with redirect_stderr(StringIO()):  # its progress bars would stand between the figures
        return load_gguf(smollm2_file()).to(DTYPES[dtype]).eval()
