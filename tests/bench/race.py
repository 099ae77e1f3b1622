"""A decode step against recomputing its whole prefix, on the real model: seconds measured, FLOP counted."""

from __future__ import annotations

from statistics import median

import torch

from core.lab.race import Lanes, Race
from core.model.load import load_model
from core.model.products import available_cores

CONTEXTS = (64, 256, 1024)
N_STEPS = 4  # a round: the prefill, which is left out, and three decode steps
# The whole prefix of the longest context, three times a round, takes seconds.
MOST_ROUNDS = 3


def report_race(dtypes: list[str], rounds: int) -> None:
    """Races at each context length in every round, and prints medians of the steps behind the prefill."""
    rounds = min(rounds, MOST_ROUNDS)
    print(f"\nsmollm2, a step with the cache against recomputing, {available_cores()} cores, {rounds} rounds, medians")
    for dtype in dtypes:
        model = load_model("smollm2", device="cpu", dtype=dtype)
        for n_tokens in CONTEXTS:
            generator = torch.Generator().manual_seed(0)
            ids = torch.randint(0, 40_000, (n_tokens - 1,), generator=generator).tolist()
            cached, recomputed, flops, difference = [], [], Lanes(1, 1), 0.0
            for number in range(rounds + 1):
                race = Race(model, ids, N_STEPS)
                for point in race.points():
                    point()
                result = race.result
                decoding = result.after_prefill
                flops, difference = decoding.flops, max(difference, result.logit_difference)
                if number:  # the first round warms up
                    cached += [step.cached.seconds for step in decoding.steps]
                    recomputed += [step.recomputed.seconds for step in decoding.steps]
            seconds = Lanes(median(cached), median(recomputed))
            print(
                f"  {dtype:<4} n {n_tokens:>5}  {1e3 * seconds.cached:7.1f} ms against {1e3 * seconds.recomputed:8.1f}"
                f" ms: {seconds.ratio:6.1f}× the time, {flops.ratio:7.1f}× the FLOP   logits differ by"
                f" {difference:.1e} at most"
            )
