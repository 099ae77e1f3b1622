"""What may be asked on the command line, checked before torch is imported."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn


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
    return parser


def one_line(text: str) -> str:
    """The text with every run of blanks, line ends included, as one space: what was typed may hold anything."""
    return " ".join(text.split())


def whole_number(least: int) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` on, below 2⁶⁴."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 20 or not least <= int(text) < 2**64:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text[:40]!r}")
        return int(text)

    return parse


def number(least: float, most: float = math.inf) -> Callable[[str], float]:
    """An argparse type: a finite number between `least` and `most`."""
    wanted = f"from {least} on" if most == math.inf else f"between {least} and {most}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"must be a number {wanted}, not {text[:40]!r}")
        return value

    return parse
