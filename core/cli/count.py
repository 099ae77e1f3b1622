"""`python -m core count`: a model's matrix products, counted by torch beside the exact estimate."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from core.cli.wanted import wanted_shape

if TYPE_CHECKING:
    from core.lab.count import Counted, CountedPhase


def count_command(arguments: argparse.Namespace) -> None:
    """Finds the model, counts, prints the figures. Raises Refusal with the reason."""
    shape = wanted_shape(arguments)
    # Only now: what was asked for exists, and torch takes seconds to import.
    from core.lab.count import count

    counted = count(shape, n_tokens=arguments.context, batch=arguments.batch)
    print(json.dumps(counted_json(counted)) if arguments.json else table(counted))


def counted_json(counted: Counted) -> dict[str, Any]:
    """The figures in the fixed form of the command line."""
    return {
        "model": counted.model,
        "context": counted.n_tokens,
        "batch": counted.batch,
        "prefill": phase_json(counted.prefill),
        "decode": phase_json(counted.decode),
    }


def phase_json(phase: CountedPhase) -> dict[str, Any]:
    """One phase in the fixed form."""
    return {"flops_counted": phase.flops_counted, "flops_exact": phase.flops_exact, "gap": phase.gap}


def table(counted: Counted) -> str:
    """The figures for a reader: each phase, and of what its count consists."""
    lines = [f"{counted.model}, context {counted.n_tokens:,}, batch {counted.batch:,}"]
    lines.append(f"{'phase':<22} {'counted, FLOP':>26} {'exact, FLOP':>26} {'gap':>9} {'seconds':>9}")
    for name, phase in (("prefill", counted.prefill), ("decode", counted.decode)):
        figures = f"{phase.flops_counted:>26,} {phase.flops_exact:>26,} {phase.gap:>+9.3%} {phase.seconds:>9.2f}"
        lines.append(f"{name:<22} {figures}")
        lines += (f"  {part.replace('_', ' '):<20} {flops:>26,}" for part, flops in phase.parts)
    return "\n".join(lines)
