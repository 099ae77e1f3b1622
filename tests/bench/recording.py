"""What recording costs: the same decode steps with nothing kept and with everything kept, in turn."""

from __future__ import annotations

import time
from statistics import median

import torch

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.model.load import load_model

EVERYTHING = RecordConfig(candidates=8, kv_norms=True, queries=True, attention=(14, 2))


def recording_share(dtype: str, prompt_tokens: int, n_steps: int) -> float:
    """The median step's extra time as a share of the step without a record; smollm2, one run each way, alternating."""
    model = load_model("smollm2", device="cpu", dtype=dtype)
    prompt = torch.randint(0, 40_000, (prompt_tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    runs = [
        Run(model, prompt, RunConfig(max_new=n_steps + 1, record=record)) for record in (RecordConfig(), EVERYTHING)
    ]
    seconds: list[list[float]] = [[], []]
    step(model, runs)
    for _ in range(n_steps):
        for run, of_run in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            step(model, [run])
            of_run.append(time.perf_counter() - started)
    plain, recorded = map(median, seconds)
    return recorded / plain - 1
