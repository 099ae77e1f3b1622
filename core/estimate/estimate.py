"""All figures of a model at one batch and context, as `python -m core estimate` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from core.estimate.accelerators import Accelerator
from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes
from core.estimate.fit import Fit, capacity_bytes, fit
from core.estimate.floors import Floor, floor
from core.estimate.flops import decode_flops, decode_flops_chapter, prefill_flops, prefill_flops_chapter
from core.estimate.kv import kv_bytes, kv_bytes_per_token
from core.estimate.shape import Attention, LatentAttention, ModelShape, Note
from core.estimate.weights import ParamCounts, parameters, weight_bytes, weight_bytes_read, weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is estimated for: `context` counts the new token of a decode step, or the prompt of a prefill."""

    batch: int = 1
    context: int = 4096
    weight_dtypes: WeightDtypes = BF16_WEIGHTS
    kv_dtypes: KvDtypes = BF16_KV
    accelerator: Accelerator | None = None
    ranks: int = 1
    memory_fraction: float = 0.9


class Decode(NamedTuple):
    """One decode step of the whole batch: FLOP, bytes, FLOP a byte, and the least time on the card."""

    flops_chapter: int
    flops_exact: int
    weights_read: int
    kv_read: int
    intensity: float
    floor: Floor | None


class Prefill(NamedTuple):
    """A prefill of the whole batch: FLOP, bytes, and the least time on the card, by the causal count."""

    flops_chapter: int
    flops_exact: int
    flops_exact_causal: int
    weights_read: int
    kv_written: int
    floor: Floor | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Every figure in bytes, FLOP and seconds: the whole batch's, but for `kv_bytes_per_token`, one sequence's."""

    shape: ModelShape
    request: Request
    params: ParamCounts
    weight_bytes: int
    kv_bytes_per_token: int | None
    kv_bytes: int
    decode: Decode
    prefill: Prefill
    fit: Fit | None


def estimate(shape: ModelShape, request: Request) -> Estimate:
    """The figures of `shape` at `request`."""
    batch, context = request.batch, request.context
    kv = kv_bytes(shape, n_tokens=context, batch=batch, dtypes=request.kv_dtypes)
    return Estimate(
        shape=shape,
        request=request,
        params=parameters(shape),
        weight_bytes=weight_bytes(shape, request.weight_dtypes),
        kv_bytes_per_token=kv_bytes_per_token(shape, request.kv_dtypes),
        kv_bytes=kv,
        decode=_decode(shape, request, kv),
        prefill=_prefill(shape, request, kv),
        fit=_fit(shape, request),
    )


def _decode(shape: ModelShape, request: Request, kv: int) -> Decode:
    batch, context = request.batch, request.context
    flops = decode_flops(shape, context, batch)
    read = weight_bytes_read(shape, request.weight_dtypes, batch)
    return Decode(
        flops_chapter=decode_flops_chapter(shape, context, batch),
        flops_exact=flops,
        weights_read=read,
        kv_read=kv,
        intensity=flops / (read + kv),
        floor=_floor(shape, request, flops, read, kv),
    )


def _prefill(shape: ModelShape, request: Request, kv: int) -> Prefill:
    batch, context = request.batch, request.context
    causal = prefill_flops(shape, context, batch, causal=True)
    read = weight_bytes_read(shape, request.weight_dtypes, batch * context)
    return Prefill(
        flops_chapter=prefill_flops_chapter(shape, context, batch),
        flops_exact=prefill_flops(shape, context, batch),
        flops_exact_causal=causal,
        weights_read=read,
        kv_written=kv,
        floor=_floor(shape, request, causal, read, kv),
    )


def _floor(shape: ModelShape, request: Request, flops: int, weights_read: int, kv: int) -> Floor | None:
    """Weights are shared out evenly over the ranks, the cache as its heads allow."""
    if request.accelerator is None:
        return None
    ranks = request.ranks
    if ranks > 1:
        kv = kv_bytes(shape, n_tokens=request.context, batch=request.batch, dtypes=request.kv_dtypes, ranks=ranks)
    moved = weights_read / ranks + kv
    return floor(request.accelerator, request.weight_dtypes.rest, flops, moved, ranks)


def _fit(shape: ModelShape, request: Request) -> Fit | None:
    if request.accelerator is None:
        return None
    return fit(
        shape,
        capacity=capacity_bytes(request.accelerator, request.memory_fraction),
        n_tokens=request.context,
        batch=request.batch,
        weight_dtypes=request.weight_dtypes,
        kv_dtypes=request.kv_dtypes,
        ranks=request.ranks,
    )


def estimate_json(made: Estimate) -> dict[str, Any]:
    """The fixed form of the command line and of the live route."""
    decode, prefill = made.decode, made.prefill
    return {
        "model": model_json(made.shape, notes_of(made)),
        "params": {"total": made.params.total, "embedding": made.params.input_table, "active": made.params.active},
        "weight_bytes": made.weight_bytes,
        "kv_bytes_per_token": made.kv_bytes_per_token,
        "kv_bytes": made.kv_bytes,
        "decode": {
            "flops_chapter": decode.flops_chapter,
            "flops_exact": decode.flops_exact,
            "bytes_read": {"weights": decode.weights_read, "kv": decode.kv_read},
            "intensity": decode.intensity,
            "time_floor_s": decode.floor and decode.floor.seconds,
            "bound": decode.floor and decode.floor.bound,
        },
        "prefill": {
            "flops_chapter": prefill.flops_chapter,
            "flops_exact": prefill.flops_exact,
            "flops_exact_causal": prefill.flops_exact_causal,
            "bytes": {"weights_read": prefill.weights_read, "kv_written": prefill.kv_written},
            "time_floor_s": prefill.floor and prefill.floor.seconds,
            "bound": prefill.floor and prefill.floor.bound,
        },
        "fit": made.fit and made.fit._asdict(),
    }


def model_json(shape: ModelShape, notes: list[str]) -> dict[str, Any]:
    """The model in the fixed form; heads that differ between layers, or are latents, are null."""
    return {
        "name": shape.name,
        "architecture": shape.architecture,
        "n_layers": shape.n_layers,
        "d_model": shape.d_model,
        "n_heads": common(shape, "n_heads"),
        "n_kv_heads": common(shape, "n_kv_heads"),
        "head_dim": common(shape, "head_dim"),
        "context_limit": shape.context_limit or None,
        "notes": notes,
    }


def common(shape: ModelShape, name: str) -> int | None:
    """A number of attention that all layers with attention share, or None."""
    kinds: set[Attention | LatentAttention] = {group.attention for group in shape.groups if group.attention is not None}
    found = {getattr(kind, name, None) for kind in kinds}
    return found.pop() if len(found) == 1 else None


def notes_of(made: Estimate, language: str = "en") -> list[str]:
    """What a reader of these figures should know, as sentences."""
    shape, request = made.shape, made.request
    notes = list(shape.notes)
    if made.kv_bytes_per_token is None:
        notes.append(Note(key="estimate.note_kv_depends_on_n"))
    if (
        len({group.attention for group in shape.groups if group.attention} - {None}) > 1
        and common(shape, "n_kv_heads") is None
    ):
        notes.append(Note(key="estimate.note_heads_differ"))
    if shape.context_limit and request.context > shape.context_limit:
        values = (("context", request.context), ("limit", shape.context_limit))
        notes.append(Note(key="estimate.note_beyond_context_limit", values=values))
    for part in request.weight_dtypes.parts_without(weight.part for weight in weights(shape) if weight.follows_part):
        notes.append(Note(key="estimate.note_part_absent", values=(("part", part),)))
    if request.accelerator is not None and made.decode.floor is None:
        notes.append(Note(key="estimate.note_peak_unknown", values=(("accelerator", request.accelerator.name),)))
    return [note.sentence(language) for note in notes]
