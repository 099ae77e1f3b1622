"""What stands behind a figure of a run: the formula with its values, the sources that computed it, and its siblings.

Here is nothing of streamlit. A figure's value is the record's own; a derivation shows how it comes about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from core.engine.begun import Begun
from core.engine.finish import bytes_read
from core.engine.trace import Phase, StepEvent, Trace
from core.estimate import flops
from core.estimate.derivation import TWO, Derivation, Factor, Term
from core.estimate.kv import B_KV, M_KV, kv_bytes, kv_derivation, kv_rows
from core.estimate.symbols import GroupSymbols, group_symbols
from core.estimate.weights import parameters, weights
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.transformer import Transformer
from pages.shared.chances import OpenedChance, chance_of, is_chance
from pages.shared.source_code import Source, sources


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another figure for the same thing, in the same unit; `name` is its key. The gap is taken from the reference of
    the two, so that it is the same whichever of them was opened."""

    name: str
    value: int
    is_reference: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFigure:
    """A figure of a run with all that stands behind it.

    Attributes:
        value: the record's figure, in the derivation's unit; None where it is not defined yet.
        about: keys of the sentences that say what it is and how it can differ from the others.
        siblings: what it is to be compared with.
        of_the_run: whether it belongs to the run as a whole, not to one step.
    """

    name: str
    value: int | float | None
    derivation: Derivation
    about: tuple[str, ...]
    sources: tuple[Source, ...]
    siblings: tuple[Sibling, ...] = ()
    of_the_run: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a figure stands."""

    started: Begun
    trace: Trace
    event: StepEvent
    waiting_seconds: float


def is_figure(name: object, step: object, trace: Trace) -> bool:
    """Whether a browser's words name a figure and a step that this run has."""
    if not (isinstance(name, str) and type(step) is int and 0 <= step < len(trace.steps)):
        return False
    known = name in FIGURES and bool(trace.output_ids or name not in ("ttft", "tpot"))
    return known or is_chance(name, trace.steps[step])


def derivation_of(
    figure: str, started: Begun, trace: Trace, step: int, *, waiting_seconds: float
) -> OpenedFigure | OpenedChance:
    """The figure of a step, opened. Raises KeyError or IndexError for what `is_figure` refuses."""
    if step < 0:
        raise IndexError(step)
    if is_chance(figure, trace.steps[step]):
        return chance_of(figure, started, trace.steps[step])
    return FIGURES[figure](_Place(started, trace, trace.steps[step], waiting_seconds))


def _flops_chapter(at: _Place) -> OpenedFigure:
    event, shape = at.event, at.started.model.shape
    compute, derive = flops.prefill_flops_chapter, flops.prefill_chapter_derivation
    if event.phase is Phase.DECODE:
        compute, derive = flops.decode_flops_chapter, flops.decode_chapter_derivation
    return OpenedFigure(
        name="flops_chapter",
        value=event.flops_chapter,
        derivation=derive(shape, event.n_tokens),
        about=(f"about_flops_chapter_{event.phase}", "about_flops_chapter"),
        sources=sources(compute, derive, flops.chapter_params, parameters),
        siblings=(Sibling("flops_exact", event.flops_exact, is_reference=True),),
    )


def _flops_exact(at: _Place) -> OpenedFigure:
    return OpenedFigure(
        name="flops_exact",
        value=at.event.flops_exact,
        derivation=flops.step_flops_derivation(at.started.model.shape, _passes(at)),
        about=("about_flops_exact", f"about_flops_exact_{at.event.phase}"),
        sources=sources(flops.layers_flops, flops.layers_terms, flops.head_flops, weights),
        siblings=(Sibling("flops_chapter", at.event.flops_chapter, is_reference=False),),
    )


def _kv_formula(at: _Place) -> OpenedFigure:
    event, model = at.event, at.started.model
    return OpenedFigure(
        name="kv_formula",
        value=event.kv_bytes_formula,
        derivation=kv_derivation(model.shape, n_tokens=_kept(at), dtypes=model.kv_dtypes),
        about=("about_kv_formula", _kept_or_not(at)),
        sources=sources(kv_bytes, kv_rows),
        siblings=(Sibling("kv_tensors", event.kv_bytes, is_reference=True),),
    )


def _kv_tensors(at: _Place) -> OpenedFigure:
    event, of = at.event, _layers(at)
    positions, element = Factor("n", _kept(at)), Factor(B_KV, at.started.model.element_bytes)
    elements = Term((of["L"], TWO, of["n_kv"], positions, of["d_h"], element))
    return OpenedFigure(
        name="kv_tensors",
        value=event.kv_bytes,
        derivation=Derivation(M_KV, (elements,), "B"),
        about=("about_kv_tensors", _kept_or_not(at)),
        sources=sources(KVCache.used_bytes, KVCache.write),
        siblings=(Sibling("kv_formula", event.kv_bytes_formula, is_reference=False),),
    )


def _kv_reserved(at: _Place) -> OpenedFigure:
    event, of = at.event, _layers(at)
    blocks, block = Factor("\\lceil n / \\beta \\rceil", -(-_kept(at) // BLOCK_TOKENS)), Factor("\\beta", BLOCK_TOKENS)
    elements = Term((of["L"], TWO, of["n_kv"], blocks, block, of["d_h"], Factor(B_KV, at.started.model.element_bytes)))
    return OpenedFigure(
        name="kv_reserved",
        value=event.kv_reserved_bytes,
        derivation=Derivation("M_{\\mathrm{reserved}}", (elements,), "B"),
        about=("about_kv_reserved", _kept_or_not(at)),
        sources=sources(KVCache.reserved_bytes, KVCache.reserve),
        siblings=(Sibling("kv_tensors", event.kv_bytes, is_reference=True),),
    )


def _bytes_read(at: _Place) -> OpenedFigure:
    in_chunks = at.event.n_passes > 1
    parts = Factor("R", at.event.weight_bytes_read, "weights"), Factor("R", at.event.kv_bytes_read, "cache")
    return OpenedFigure(
        name="bytes_read",
        value=at.event.bytes_read,
        derivation=Derivation("R", tuple(Term((part,)) for part in parts), "B"),
        about=("about_bytes_read", "about_bytes_read_chunks" if in_chunks else f"about_bytes_read_{at.event.phase}"),
        sources=sources(StepEvent.bytes_read, bytes_read, Transformer.product_bytes),
    )


def _step_time(at: _Place) -> OpenedFigure:
    return OpenedFigure(
        name="step_time",
        value=at.event.total_seconds,
        derivation=Derivation("t", _seconds(_pass_and_sampling(at.event)), "s"),
        about=("about_step_time",),
        sources=sources(StepEvent.total_seconds),
    )


def _ttft(at: _Place) -> OpenedFigure:
    before = {"waiting": at.waiting_seconds, "tokenising": at.trace.tokenising_seconds}
    return OpenedFigure(
        name="ttft",
        value=at.waiting_seconds + (at.trace.time_to_first_token_s or 0.0),
        derivation=Derivation("\\mathrm{TTFT}", _seconds(before | _pass_and_sampling(at.trace.steps[0])), "s"),
        about=("about_ttft",),
        sources=sources(Trace.time_to_first_token_s, StepEvent.total_seconds),
        of_the_run=True,
    )


def _tpot(at: _Place) -> OpenedFigure:
    per_token = at.trace.time_per_output_token_s
    to_first = at.waiting_seconds + (at.trace.time_to_first_token_s or 0.0)
    total = to_first + sum(event.total_seconds for event in at.trace.steps[1:])
    outputs_but_one = Factor("N", len(at.trace.output_ids), plus=-1)
    difference = Term((Factor("t", total, "total"),)), Term((Factor("\\mathrm{TTFT}", to_first),), sign=-1)
    return OpenedFigure(
        name="tpot",
        value=per_token,
        derivation=Derivation("\\mathrm{TPOT}", difference, "s", over=(outputs_but_one,)),
        about=("about_tpot", *(["about_tpot_not_yet"] if per_token is None else [])),
        sources=sources(Trace.time_per_output_token_s, StepEvent.total_seconds),
        of_the_run=True,
    )


def _attended_pairs(at: _Place) -> OpenedFigure:
    event, rectangle = at.event, sum(new * (past + new) for new, past in _passes(at))
    return OpenedFigure(
        name="attended_pairs",
        value=event.attended_pairs,
        derivation=flops.attended_pairs_derivation(event.new_positions, event.reused_positions),
        about=("about_attended_pairs",),
        sources=sources(flops.attended_pairs, flops.attended_pairs_derivation),
        siblings=(Sibling("pairs_rectangle", rectangle, is_reference=True),),
    )


FIGURES: dict[str, Callable[[_Place], OpenedFigure]] = {
    "flops_chapter": _flops_chapter,
    "flops_exact": _flops_exact,
    "kv_formula": _kv_formula,
    "kv_tensors": _kv_tensors,
    "kv_reserved": _kv_reserved,
    "bytes_read": _bytes_read,
    "step_time": _step_time,
    "ttft": _ttft,
    "tpot": _tpot,
    "attended_pairs": _attended_pairs,
}


def _passes(at: _Place) -> list[tuple[int, int]]:
    """(new, past) positions of each pass of the step: one, unless the run's settings cut a prefix into chunks."""
    event = at.event
    size = at.started.config.prefill_chunk or event.new_positions
    sizes = [min(size, event.new_positions - begin) for begin in range(0, event.new_positions, size)]
    return list(zip(sizes, accumulate(sizes, initial=event.reused_positions), strict=False))


def _layers(at: _Place) -> GroupSymbols:
    """The shape as factors: the layers of a model that runs here are all alike."""
    return group_symbols(at.started.model.shape)[0]


def _kept(at: _Place) -> int:
    """Positions whose keys and values outlive the step."""
    return at.event.n_tokens if at.started.config.use_cache else 0


def _kept_or_not(at: _Place) -> str:
    return "about_kept" if at.started.config.use_cache else "about_not_kept"


def _pass_and_sampling(event: StepEvent) -> dict[str, float]:
    return {"pass": event.seconds, "sampling": event.sampled.seconds if event.sampled else 0.0}


def _seconds(parts: dict[str, float]) -> tuple[Term, ...]:
    return tuple(Term((Factor("t", seconds, name),)) for name, seconds in parts.items())
