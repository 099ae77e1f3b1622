"""`python -m core trace`: a run on the command line, every step with its figures."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.engine.trace import StepEvent, Trace
from core.model.load import LanguageModel, load_model
from core.model.sampling import SamplingConfig


def trace_command(arguments: argparse.Namespace) -> None:
    """Loads the model, runs the prompt, prints the record. Raises Refusal with the reason."""
    sampling = SamplingConfig(
        temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p, seed=arguments.seed
    )
    config = RunConfig(max_new=arguments.max_new, sampling=sampling, use_cache=not arguments.no_cache)
    model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
    started = time.perf_counter()
    prompt_ids = model.prompt_ids(arguments.prompt, raw=arguments.raw)
    run = Run(model, prompt_ids, config, tokenising_seconds=time.perf_counter() - started)
    for event in generate(model, run):
        if not arguments.json:
            print(step_line(event), flush=True)
    if arguments.json:
        is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        print(json.dumps(trace_json(model, run.trace), ensure_ascii=not is_unicode))
    else:
        print(summary(run.trace))


def trace_json(model: LanguageModel, trace: Trace) -> dict[str, Any]:
    """The record in the fixed form of the command line and of saved runs."""
    return {
        "model": model.name,
        "device": str(model.device.torch_device),
        "dtype": model.dtype_name,
        "prompt_ids": list(trace.prompt_ids),
        "output_ids": list(trace.output_ids),
        "text": trace.text,
        "stopped": str(trace.stopped) if trace.stopped else None,
        "ttft_s": trace.time_to_first_token_s,
        "tpot_s": trace.time_per_output_token_s,
        "steps": [step_json(event) for event in trace.steps],
    }


def step_json(event: StepEvent) -> dict[str, Any]:
    """One step in the fixed form."""
    return {
        "phase": str(event.phase),
        "n_tokens": event.n_tokens,
        "new_positions": event.new_positions,
        "reused_positions": event.reused_positions,
        "flops_exact": event.flops_exact,
        "flops_chapter": event.flops_chapter,
        "kv_bytes": event.kv_bytes,
        "kv_bytes_formula": event.kv_bytes_formula,
        "seconds": event.total_seconds,
        "token_id": event.sampled.token_id if event.sampled else None,
        "token_text": event.sampled.text if event.sampled else "",
    }


def step_line(event: StepEvent) -> str:
    """One step for a reader."""
    token = repr(event.sampled.label) if event.sampled else "no token asked for"
    positions = f"computed {event.new_positions:<5} reused {event.reused_positions:<5}"
    figures = f"{event.flops_exact / 1e9:8.3f} GFLOP  KV {event.kv_bytes:>11,} B  {event.total_seconds * 1e3:8.2f} ms"
    return f"{event.phase:<9} n={event.n_tokens:<5} {positions} {figures}  {token}"


def summary(trace: Trace) -> str:
    """The text, and the two latencies of the chapter, for a reader."""
    lines = ["", trace.text, "", f"stopped: {trace.stopped}"]
    if trace.time_to_first_token_s is not None:
        lines.append(f"time to first token    {trace.time_to_first_token_s * 1e3:8.2f} ms")
    if trace.time_per_output_token_s is not None:
        lines.append(f"time per output token  {trace.time_per_output_token_s * 1e3:8.2f} ms")
    return "\n".join(lines)
