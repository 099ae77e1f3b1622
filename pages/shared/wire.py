"""The stage's byte format: a run's record as frames that the component in the browser takes in.

A frame is "TBT1", the header's length (uint32, little endian), the header as JSON in UTF-8, then one byte a cell: for
each new column, each layer, K then V, each KV head; then, where the header names an attention row, its weights, two
bytes each (uint16, little endian, 65,535 is 1). A frame carries a range of steps: the component says what it has, the
answer begins there, so a lost or repeated frame does no harm. What a step adds does not grow with the run, but for the
one row of attention. A run out of a file, whose server can be asked for no more, brings the rows of earlier steps too:
the header lists them, and they stand before the newest one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from core.engine.begun import Begun, Labels
from core.engine.saved_run import KeptRow, SavedRun
from core.engine.trace import AttentionRow, Recorded, StepEvent, Trace
from core.model.sampling import Candidate
from pages.shared.changes import Shown
from pages.shared.started import Started
from pages.shared.visit import Visit

MAGIC = b"TBT1"
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
# Norms between these quantiles of the prompt's own columns take the whole range of a cell's byte.
FAINTEST, STRONGEST = 0.02, 0.98
_SCALES: WeakKeyDictionary[Recorded, Floats] = WeakKeyDictionary()


def pack(header: Mapping[str, Any], cells: bytes = b"") -> bytes:
    """A frame. `header` holds JSON values only; NaN and infinity are a ValueError."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return MAGIC + struct.pack("<I", len(text)) + text + cells


def in_stream(frame: bytes) -> bytes:
    """A frame behind its length (uint32, little endian), as it stands in a stream."""
    return struct.pack("<I", len(frame)) + frame


def unpack(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """A frame's header and cells. Raises ValueError for bytes that are none."""
    if frame[:4] != MAGIC or len(frame) < 8:
        raise ValueError("not a frame of the stage")
    end = 8 + struct.unpack_from("<I", frame, 4)[0]
    return json.loads(frame[8:end]), frame[end:]


def run_frame(header: Mapping[str, Any], visit: Visit, started: Started, trace: Trace, start: int) -> bytes:
    """A frame of a run's steps from `start` on, with the attention of its newest step where a cache holds its keys."""
    body = run_header(started, trace, start, waiting_seconds=visit.waiting_seconds)
    return _with_attention({**header, **body}, trace, start, visit.newest_attention)


def stream_frame(visit_key: str, shown: Shown, start: int) -> bytes:
    """A frame of what a step of a stream left, from step `start` on."""
    header = {"visit": visit_key, "run": shown.run_number, "version": shown.version}
    body = run_header(shown.started, shown.trace, start, waiting_seconds=shown.waiting_seconds)
    return _with_attention(header | body, shown.trace, start, shown.attention)


def saved_frame(header: Mapping[str, Any], saved: SavedRun, start: int) -> bytes:
    """A frame of a saved run's steps from `start` on, with all the attention that was kept of them."""
    body = run_header(saved, saved.trace, start, waiting_seconds=saved.waiting_seconds)
    rows = [row for row in saved.rows if row.step >= start]
    content = cells(saved.trace, start) + b"".join(weights(row.weights) for row in rows)
    named = {"rows": [_named(row) for row in rows[:-1]], "attention": _named(rows[-1])} if rows else {}
    return pack({**header, **body, **named}, content)


def _named(row: KeptRow) -> dict[str, int]:
    return {"step": row.step, "layer": row.layer, "head": row.head}


def _with_attention(header: dict[str, Any], trace: Trace, start: int, row: AttentionRow | None) -> bytes:
    if row is None or len(row.weights) != trace.steps[-1].n_tokens:
        return pack(header, cells(trace, start))
    looked_at = {"step": len(trace.steps) - 1, "layer": row.layer, "head": row.head}
    return pack({**header, "attention": looked_at}, cells(trace, start) + weights(row.weights))


def weights(row: Floats) -> bytes:
    """Attention weights in [0, 1], any shape, as two bytes each."""
    return np.rint(np.asarray(row) * 65_535).astype("<u2").tobytes()


def run_header(started: Begun, trace: Trace, start: int, *, waiting_seconds: float) -> dict[str, Any]:
    """What a frame says of a run: facts that hold for all of it, and the steps from `start` on."""
    config, tokenizer = started.model.config, started.model.tokenizer
    pieces = "".join(step.sampled.text for step in trace.steps if step.sampled)
    header: dict[str, Any] = {
        "start": start,
        "total": len(trace.steps),
        "facts": {
            "model": started.model.name,
            "n_layers": config.n_layers,
            "n_heads": config.n_heads,
            "n_kv_heads": config.n_kv_heads,
            "head_dim": config.head_dim,
            "element_bytes": started.model.element_bytes,
            "use_cache": started.config.use_cache,
            "greedy": started.config.sampling.is_greedy,
            "in_chat": started.in_chat,
            "n_turns": len([message for message in started.history if message.role == "user"]),
            "computed_again": started.computed_again,
            "waiting_s": waiting_seconds,
            "tokenising_s": trace.tokenising_seconds,
            "tail": trace.text[len(pieces) :],
        },
        "steps": [step_record(tokenizer, event) for event in trace.steps[start:]],
    }
    if start == 0:
        header["prompt"] = [_token(tokenizer, token_id) for token_id in trace.prompt_ids]
        header["scales"] = np.round(scales(trace), 4).reshape(config.n_layers, 4).tolist()
    return header


def step_record(tokenizer: Labels, event: StepEvent) -> dict[str, Any]:
    """One step as JSON: base units, nothing rounded but probabilities."""
    sampled = event.sampled
    return {
        "phase": str(event.phase),
        "n_tokens": event.n_tokens,
        "new": event.new_positions,
        "reused": event.reused_positions,
        "passes": event.n_passes,
        "flops_chapter": event.flops_chapter,
        "flops_exact": event.flops_exact,
        "kv_bytes": event.kv_bytes,
        "kv_formula": event.kv_bytes_formula,
        "kv_reserved": event.kv_reserved_bytes,
        "bytes_read": event.bytes_read,
        "model_s": event.seconds,
        "sampling_s": sampled.seconds if sampled else 0.0,
        "token": _token(tokenizer, sampled.token_id) if sampled else None,
        "text": sampled.text if sampled else "",
        "candidates": [_candidate(tokenizer, candidate) for candidate in sampled.candidates] if sampled else [],
        "kept": sampled.kept_count if sampled else 0,
        "kept_mass": round(sampled.kept_mass, 6) if sampled else 0.0,
    }


def cells(trace: Trace, start: int) -> bytes:
    """The columns that the steps from `start` on added, one byte a cell: the norm of its K or V on the run's scale."""
    ranges = scales(trace)
    columns = [trace.steps[number].recorded.columns(trace.n_added(number)) for number in range(start, len(trace.steps))]
    if not columns:
        return b""
    norms = np.concatenate(columns)  # (n_added, L, 2, n_kv)
    low, high = ranges[:, :, :1], ranges[:, :, 1:]  # (L, 2, 1) each, over the heads of a cell
    levels: Bytes = np.clip(np.rint(255 * (norms - low) / (high - low)), 0, 255).astype(np.uint8)
    return levels.tobytes()


def scales(trace: Trace) -> Floats:
    """The norms [L, 2, 2] of the faintest and the strongest cell, per layer, for K and for V.

    They come from the prompt's columns alone, so a cell that is drawn once never changes its colour; they are worked
    out once a run, which is most of what a frame costs.
    """
    first = trace.steps[0]
    found = _SCALES.get(first.recorded)
    if found is None:
        norms = first.recorded.columns(trace.n_added(0))  # (P, L, 2, n_kv)
        low, high = np.quantile(norms, (FAINTEST, STRONGEST), axis=(0, 3))  # (L, 2) each
        wide = np.maximum(high - low, 0.05 * np.maximum(high, 1e-6))  # a prompt of one token has hardly any range
        found = _SCALES[first.recorded] = np.stack([low, low + wide], axis=-1).astype(np.float32)
    return found


def _token(tokenizer: Labels, token_id: int) -> list[Any]:
    """[id, label, whether it is only a part of a character]."""
    return [token_id, tokenizer.token_label(token_id), tokenizer.is_part_of_a_character(token_id)]


def _candidate(tokenizer: Labels, candidate: Candidate) -> list[Any]:
    """[id, label, the model's own probability, the one drawn from, kept]."""
    label = tokenizer.token_label(candidate.token_id)
    before, after = round(candidate.probability, 6), round(candidate.probability_kept, 6)
    return [candidate.token_id, label, before, after, candidate.kept]
