"""`python -m core estimate`: what a model costs at a batch and a context, on a card or on none."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from core.cli.wanted import wanted_shape
from core.estimate.accelerators import accelerator_named
from core.estimate.derivations import derivations
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.estimate.estimate import Estimate, Request, estimate, estimate_json, notes_of
from core.estimate.plain import as_text
from core.estimate.query import NO_CARD
from core.words import sentence

# Figure, what a reader calls it, and its unit; in the order of the JSON.
_FIGURES = (
    ("params.total", "parameters", ""),
    ("params.active", "  used by a token besides the look-up", ""),
    ("weight_bytes", "weight memory", "B"),
    ("kv_bytes_per_token", "KV memory a token", "B"),
    ("kv_bytes", "KV memory", "B"),
    ("decode.flops_chapter", "decode, chapter", "FLOP"),
    ("decode.flops_exact", "decode, exact", "FLOP"),
    ("decode.bytes_read.weights", "  weights read", "B"),
    ("decode.bytes_read.kv", "  KV read", "B"),
    ("decode.intensity", "  intensity", "FLOP/B"),
    ("decode.time_floor_s", "  time floor", "s"),
    ("decode.bound", "  bound by", ""),
    ("prefill.flops_chapter", "prefill, chapter", "FLOP"),
    ("prefill.flops_exact", "prefill, exact", "FLOP"),
    ("prefill.flops_exact_causal", "prefill, exact, causal", "FLOP"),
    ("prefill.bytes.weights_read", "  weights read", "B"),
    ("prefill.bytes.kv_written", "  KV written", "B"),
    ("prefill.time_floor_s", "  time floor", "s"),
    ("prefill.bound", "  bound by", ""),
    ("fit.capacity_bytes", "memory that may be filled", "B"),
    ("fit.needed_bytes", "memory needed", "B"),
    ("fit.max_context", "longest context", "tokens"),
    ("fit.max_batch", "largest batch", "sequences"),
)


def estimate_command(arguments: argparse.Namespace) -> None:
    """Reads what is asked for, estimates, prints. Raises Refusal with the reason."""
    request = Request(
        batch=arguments.batch,
        context=arguments.context,
        weight_dtypes=weight_dtypes(arguments.weight_dtype),
        kv_dtypes=kv_dtypes(arguments.kv_dtype),
        accelerator=None if arguments.accelerator in (None, NO_CARD) else accelerator_named(arguments.accelerator),
        ranks=arguments.tp,
        memory_fraction=arguments.memory_fraction,
    )
    made = estimate(wanted_shape(arguments), request)
    if arguments.json:
        is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        print(json.dumps(estimate_json(made), ensure_ascii=not is_unicode))
    else:
        print("\n".join(report(made)))


def report(made: Estimate) -> Iterator[str]:
    """The figures for a reader; below each its formula, and the same with the values in it."""
    request = made.request
    yield (
        f"{made.shape.name} ({made.shape.architecture}), batch {request.batch}, context {request.context:,}, "
        f"weights {request.weight_dtypes}, KV {request.kv_dtypes}"
    )
    if request.accelerator is not None:
        ranks = f"{request.ranks} × " if request.ranks > 1 else ""
        yield f"on {ranks}{request.accelerator.name}, {request.memory_fraction:.4g} of its memory"
    yield from (f"note: {note}" for note in notes_of(made))
    figures, found = estimate_json(made), derivations(made)
    for name, label, unit in _FIGURES:
        value: Any = figures
        for key in name.split("."):
            value = value and value[key]
        if value is not None:
            of_rank = ", each rank" if request.ranks > 1 and name in ("fit.capacity_bytes", "fit.needed_bytes") else ""
            yield f"{label + of_rank:<38}{written(value)} {unit}".rstrip()
        if name in found:
            symbol, *sides, _ = as_text(found[name], _word).split(" = ")
            for lead, side in zip((f"{symbol} = ", "= "), sides, strict=False):
                yield from wrap(side, 110, initial_indent=f"    {lead}", subsequent_indent="      ")
    if made.fit is not None:
        yield "it fits" if made.fit.fits else "it does not fit"


def written(value: int | float | str) -> str:
    """A number with separators, one that is not whole to six digits; a word as it is."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _word(key: str) -> str:
    return sentence(f"derivations.{key}", "en")
