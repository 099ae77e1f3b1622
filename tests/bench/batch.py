"""Runs that decode together: tokens a second of all of them, against one run alone, with and without a record."""

from __future__ import annotations

import time
from itertools import product
from statistics import median

import torch

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import decode_one_token, prefill
from core.model.load import LanguageModel, load_model
from core.model.products import available_cores

BATCHES = (1, 4, 16, 32)
RECORDS = {"no record": RecordConfig(), "page 1's record": RecordConfig(candidates=8, kv_norms=True, queries=True)}
N_STEPS = {1: 24, 4: 16}  # a round; larger batches take 8
# What 16 visitors together are to reach: times one visitor in the same dtype, times the fastest single visitor.
GOAL_B, GOAL_SAME, GOAL_FASTEST = 16, 8, 4

Case = tuple[str, str, int]  # dtype, record, B


def report_batches(dtypes: list[str], prompt_tokens: int, rounds: int) -> None:
    """Measures every case in every round, one after another, and prints medians over all rounds."""
    models = {dtype: load_model("smollm2", device="cpu", dtype=dtype) for dtype in dtypes}
    cases: list[Case] = list(product(dtypes, RECORDS, BATCHES))
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            steps = round_of(models[case[0]], RECORDS[case[1]], case[2], prompt_tokens)
            if number:  # the first round warms up
                seconds[case] += steps
    print(
        f"\nsmollm2, B runs decoding together, {available_cores()} cores, about {prompt_tokens} prompt tokens, "
        f"{rounds} alternating rounds"
    )
    rate = {case: case[2] / median(of_case) for case, of_case in seconds.items()}
    for name in RECORDS:
        fastest = max(rate[dtype, name, 1] for dtype in dtypes)
        for dtype, batch in product(dtypes, BATCHES):
            case = dtype, name, batch
            to_same, to_fastest = rate[case] / rate[dtype, name, 1], rate[case] / fastest
            goal = f"  (goals {GOAL_SAME}×, best dtype {GOAL_FASTEST}×)" if batch == GOAL_B else ""
            print(
                f"  {name:<15} {dtype:<4} B {batch:>2}  {rate[case]:7.1f} tokens/s   step p50 "
                f"{quantile(seconds[case], 0.5):6.1f} ms  p95 {quantile(seconds[case], 0.95):6.1f} ms   "
                f"{to_same:5.2f}× B = 1, {to_fastest:5.2f}× the fastest B = 1{goal}"
            )


def round_of(model: LanguageModel, record: RecordConfig, batch: int, prompt_tokens: int) -> list[float]:
    """Seconds of each decode step of B fresh runs, prompts a few tokens apart in length."""
    n_steps = N_STEPS.get(batch, 8)
    runs = []
    for row in range(batch):
        generator = torch.Generator().manual_seed(row)
        ids = torch.randint(0, 40_000, (max(1, prompt_tokens - 4 + row % 9),), generator=generator).tolist()
        runs.append(Run(model, ids, RunConfig(max_new=n_steps + 2, record=record)))
    prefill(model, runs)
    steps = []
    for _ in range(n_steps):
        going = [run for run in runs if run.stopped is None]
        started = time.perf_counter()
        decode_one_token(model, going)
        # A run may have met its end token: then the step is counted as if it had still been there.
        steps.append((time.perf_counter() - started) * batch / len(going))
    return steps


def quantile(seconds: list[float], q: float) -> float:
    """In milliseconds."""
    return torch.tensor(seconds).quantile(q).item() * 1e3
