"""`make bench`: ours against transformers on the same weights and threads, in one run; batches, estimates, pages …

Machines differ and change from minute to minute, so every figure is a median of alternating rounds, and what counts is
the ratio inside this run. The read bandwidth is what a plain sum over 256 MiB reaches between the rounds.
"""

from __future__ import annotations

import argparse

import torch

from core.model.products import available_cores
from tests.bench.bandwidth import ReadBandwidth
from tests.bench.batch import report_batches
from tests.bench.dials import report_dials
from tests.bench.estimate import report_estimates
from tests.bench.page import report_pages
from tests.bench.race import report_race
from tests.bench.recording import recording_share
from tests.bench.speed import Speed, measure
from tests.bench.stage import report_stage

DTYPES = ("f32", "bf16", "f16")
PARTS = ("engine", "batch", "race", "estimate", "pages", "stage", "dials")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}, with commas (all)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="which to measure (all three)")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds a dtype (5)")
    parser.add_argument("--new", type=int, default=48, help="tokens to decode a round (48)")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="positions to prefill (64)")
    arguments = parser.parse_args()
    if "engine" in arguments.parts.split(","):
        report_engine(arguments)
    if "batch" in arguments.parts.split(","):
        report_batches(arguments.dtypes.split(","), arguments.prompt_tokens, arguments.rounds)
    if "race" in arguments.parts.split(","):
        report_race(arguments.dtypes.split(","), arguments.rounds)
    if "estimate" in arguments.parts.split(","):
        report_estimates()
    if "pages" in arguments.parts.split(","):
        report_pages()
    if "stage" in arguments.parts.split(","):
        report_stage()
    if "dials" in arguments.parts.split(","):
        report_dials()


def report_engine(arguments: argparse.Namespace) -> None:
    """Measures and prints the engine, dtype by dtype."""
    bandwidth = ReadBandwidth()
    print(
        f"smollm2, batch 1, {available_cores()} cores, {arguments.prompt_tokens} prompt tokens, "
        f"{arguments.new} decoded, {arguments.rounds} alternating rounds, medians (quartiles)"
    )
    for dtype in arguments.dtypes.split(","):
        ours, theirs = measure(dtype, arguments.prompt_tokens, arguments.new, arguments.rounds, bandwidth)
        report(dtype, ours, theirs, bandwidth)
        share = recording_share(dtype, arguments.prompt_tokens, 2 * arguments.new)
        print(f"  recording candidates, norms, queries and one attention row adds {share:.1%} to a decode step")


def report(dtype: str, ours: Speed, theirs: Speed, bandwidth: ReadBandwidth) -> None:
    """Prints one dtype: both sides, their ratios, and the share of the read bandwidth a decode step reaches."""
    print(f"\n{dtype}")
    for name, speed in (("token by token", ours), ("transformers", theirs)):
        print(
            f"  {name:<15} decode {1 / speed.decode_s:7.1f} tokens/s  {spread(speed.decode_all)} ms"
            f"   prefill {speed.prompt_tokens / speed.prefill_s:8.1f} tokens/s  {spread(speed.prefill_all)} ms"
        )
    print(
        f"  ratio           decode {theirs.decode_s / ours.decode_s:5.2f}×  prefill "
        f"{theirs.prefill_s / ours.prefill_s:5.2f}×"
    )
    rate = ours.bytes_per_step / ours.decode_s
    print(
        f"  a step must read {ours.bytes_per_step / 1e6:.1f} MB: {rate / 1e9:.1f} GB/s, "
        f"{rate / bandwidth.bytes_per_s:.0%} of the {bandwidth.bytes_per_s / 1e9:.1f} GB/s a plain sum reads"
    )


def spread(seconds: list[float]) -> str:
    """Median and quartiles in milliseconds."""
    q1, q2, q3 = torch.tensor(seconds).quantile(torch.tensor([0.25, 0.5, 0.75])).mul(1e3).tolist()
    return f"{q2:7.2f} ({q1:.2f}–{q3:.2f})"


if __name__ == "__main__":
    main()
