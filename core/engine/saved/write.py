"""A run as a header and arrays."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from core.engine.saved.record import SavedRun
from core.engine.trace import Sampled, StepEvent
from core.model.sampling import Candidate

# The numbers of a ModelConfig that a shape is made of.
SIZES = ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "vocab_size", "context_limit")
SWITCHES = ("tied_head", "qkv_bias", "qk_norm")
FULL_WEIGHT = 65_535
"""What an attention weight of 1 is written as, in two bytes."""


def header_of(saved: SavedRun) -> bytes:
    """Everything but the arrays, as JSON: base units, nothing rounded."""
    return json.dumps(_header(saved), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def arrays_of(saved: SavedRun) -> bytes:
    """Norms [positions, L, 2, n_kv] as fp32, then all rows of attention as two bytes a weight; little endian."""
    trace = saved.trace
    columns = [step.recorded.columns(trace.n_added(number)) for number, step in enumerate(trace.steps)]
    norms = np.concatenate(columns).astype("<f4").tobytes()
    rows = (np.rint(row.weights * FULL_WEIGHT).astype("<u2").tobytes() for row in saved.rows)
    return norms + b"".join(rows)


def _header(saved: SavedRun) -> dict[str, Any]:
    model, config, trace = saved.model, saved.config, saved.trace
    sampling = config.sampling
    return {
        "saved_at": saved.saved_at,
        "model": {
            "name": model.name,
            "architecture": model.config.architecture,
            **{name: getattr(model.config, name) for name in (*SIZES, *SWITCHES)},
            "dtype": model.dtype_name,
            "n_tokens_known": model.tokenizer.vocab_size,
        },
        "machine": {"device": model.device, "n_cores": model.n_cores},
        "settings": {
            "prompt": saved.prompt,
            "history": [{"role": message.role, "content": message.content} for message in saved.history],
            "in_chat": saved.in_chat,
            "use_cache": config.use_cache,
            "max_new": config.max_new,
            "prefill_chunk": config.prefill_chunk,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "repetition_penalty": sampling.repetition_penalty,
            "seed": str(sampling.seed),  # 64 bits: more than a number of JSON is read with everywhere
        },
        "computed_again": saved.computed_again,
        "waiting_s": saved.waiting_seconds,
        "tokenising_s": trace.tokenising_seconds,
        "prompt_ids": list(trace.prompt_ids),
        "text": trace.text,
        "stopped": {"kind": str(trace.stopped.kind), "value": trace.stopped.value} if trace.stopped else None,
        "labels": [
            {"id": token_id, "label": label, "part": is_part}
            for token_id, (label, is_part) in model.tokenizer.known.items()
        ],
        "steps": [_step(step) for step in trace.steps],
        "rows": [{"step": row.step, "layer": row.layer, "head": row.head} for row in saved.rows],
    }


def _step(step: StepEvent) -> dict[str, Any]:
    return {
        "phase": str(step.phase),
        "n_tokens": step.n_tokens,
        "new_positions": step.new_positions,
        "reused_positions": step.reused_positions,
        "attended_pairs": step.attended_pairs,
        "flops_exact": step.flops_exact,
        "flops_chapter": step.flops_chapter,
        "kv_bytes": step.kv_bytes,
        "kv_bytes_formula": step.kv_bytes_formula,
        "kv_reserved_bytes": step.kv_reserved_bytes,
        "n_passes": step.n_passes,
        "weight_bytes_read": step.weight_bytes_read,
        "kv_bytes_read": step.kv_bytes_read,
        "batch": step.batch,
        "seconds": step.seconds,
        "sampled": _sampled(step.sampled) if step.sampled else None,
    }


def _sampled(sampled: Sampled) -> dict[str, Any]:
    return {
        "token_id": sampled.token_id,
        "text": sampled.text,
        "seconds": sampled.seconds,
        "kept_count": sampled.kept_count,
        "kept_mass": sampled.kept_mass,
        "model_total": sampled.model_total,
        "best_score": sampled.best_score,
        "kept_total": sampled.kept_total,
        "candidates": [_candidate(candidate) for candidate in sampled.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.token_id,
        "probability": candidate.probability,
        "kept": candidate.kept,
        "probability_kept": candidate.probability_kept,
        "logit": _score(candidate.logit),
        "score": _score(candidate.score),
    }


def _score(value: float) -> float | None:
    return None if value == -math.inf else value
