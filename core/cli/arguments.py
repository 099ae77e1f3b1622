"""What may be asked on the command line, checked before torch is imported."""

from __future__ import annotations

import argparse
from typing import NoReturn

from core.cli.endpoint_options import add_endpoint
from core.cli.values import number, one_line, whole_number, whole_numbers
from core.estimate.query import LEAST_FRACTION, MOST_BATCH, MOST_CONTEXT, MOST_RANKS


class OneLineParser(argparse.ArgumentParser):
    """argparse, but an error is one sentence on stderr and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, one_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of `python -m core`."""
    parser = OneLineParser(prog="python -m core", description="Token by Token on the command line.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser)
    trace = commands.add_parser("trace", help="run a model token by token and print the record of every step")
    trace.add_argument("--model", required=True, help="smollm2, tiny, a name in TBT_MODELS, or a path")
    trace.add_argument("--prompt", required=True, help="the text to answer (with a chat template) or to continue")
    trace.add_argument("--max-new", type=whole_number(0), default=64, help="tokens to produce (64); 0: prefill only")
    trace.add_argument("--temperature", type=number(0), default=0.0, help="0 (the default) is greedy")
    trace.add_argument("--top-k", type=whole_number(0), default=0, help="0 (the default) is off")
    trace.add_argument("--top-p", type=number(0, 1), default=1.0, help="1 (the default) is off")
    trace.add_argument("--seed", type=whole_number(0), default=0, help="a draw depends on it and the position (0)")
    trace.add_argument("--no-cache", action="store_true", help="recompute the whole prefix at every step")
    trace.add_argument("--raw", action="store_true", help="leave the chat template out")
    trace.add_argument("--device", help="cpu, cuda, cuda:N or mps (default: the best there is)")
    trace.add_argument("--dtype", choices=("f32", "bf16", "f16"), help="weights and cache (default: by device)")
    trace.add_argument("--json", action="store_true", help="print the record as JSON")
    add_estimate(commands)
    add_count(commands)
    add_sweep(commands)
    add_roofs(commands)
    return parser


def add_estimate(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """`estimate`: what a model costs, from its shape alone."""
    estimate = commands.add_parser("estimate", help="parameters, memory, compute and time floors of a model")
    add_shape(estimate)
    estimate.add_argument("--batch", type=whole_number(1, MOST_BATCH), default=1, help="sequences at once (1)")
    estimate.add_argument("--context", type=whole_number(1, MOST_CONTEXT), default=4096, help="tokens (4096)")
    estimate.add_argument(
        "--weight-dtype", default="bf16", help="bf16 (the default) and others; parts apart: bf16,experts=mxfp4"
    )
    estimate.add_argument("--kv-dtype", default="bf16", help="of keys and values (bf16), or of each: q8_0:f16")
    estimate.add_argument("--accelerator", help="such as h100-sxm: time floors, and whether it fits")
    estimate.add_argument("--tp", type=whole_number(1, MOST_RANKS), default=1, help="tensor-parallel ranks (1)")
    estimate.add_argument(
        "--memory-fraction", type=number(LEAST_FRACTION, 1), default=0.9, help="of its memory that may be filled (0.9)"
    )
    estimate.add_argument("--json", action="store_true", help="print the figures as JSON")


def add_shape(command: argparse.ArgumentParser) -> None:
    """The model, from the catalogue or from a file."""
    model = command.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", help="a model of the catalogue, such as llama-3.1-8b or smollm2")
    model.add_argument("--config", help="a Hugging Face config.json")


def add_count(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """`count`: a model's products as torch counts them, beside the estimate."""
    count = commands.add_parser("count", help="count a model's matrix products with torch, beside the exact estimate")
    add_shape(count)
    count.add_argument(
        "--context", type=whole_number(1, MOST_CONTEXT), required=True, help="tokens, the new one included"
    )
    count.add_argument("--batch", type=whole_number(1, MOST_BATCH), default=1, help="sequences at once (1)")
    count.add_argument("--json", action="store_true", help="print the figures as JSON")


def add_sweep(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """`sweep`: decode steps over contexts and batches, measured into a file."""
    sweep = commands.add_parser("sweep", help="measure decode steps over contexts and batches, into a CSV file")
    sweep.add_argument("--model", help="smollm2, tiny, a name in TBT_MODELS, or a path; of a server: of the catalogue")
    sweep.add_argument(
        "--contexts", type=whole_numbers(2, MOST_CONTEXT), required=True, help="tokens, the new one included: 128,256"
    )
    sweep.add_argument("--batches", type=whole_numbers(1, MOST_BATCH), default=(1,), help="sequences at once: 1,2,4")
    sweep.add_argument("--repeats", type=whole_number(1, 1000), default=5, help="of every point (5)")
    sweep.add_argument("--csv", required=True, help="the file; one that an earlier run left is continued")
    sweep.add_argument("--fill", choices=("prefill", "fast"), default="prefill", help="fast: random keys and values")
    sweep.add_argument("--device", help="cpu, cuda, cuda:N or mps (default: the best there is)")
    sweep.add_argument("--dtype", choices=("f32", "bf16", "f16"), help="weights and cache (default: by device)")
    add_endpoint(sweep)


def add_roofs(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """`roofs`: what this machine can do at most."""
    roofs = commands.add_parser(
        "roofs", help="measure this machine's bandwidths and peaks, or print those that are kept"
    )
    roofs.add_argument("--again", action="store_true", help="measure although there are roofs that were kept")
    roofs.add_argument("--json", action="store_true", help="print the roofs as JSON")
