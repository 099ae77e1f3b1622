"""Every figure of an estimate with the way it came about, under the names of the command line's JSON.

Built when a figure is opened; the terms are those that the figures are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from core.estimate.accelerators import peak_flops
from core.estimate.derivation import Derivation, Factor, Real, Term
from core.estimate.dtypes import WeightDtypes
from core.estimate.estimate import Estimate
from core.estimate.fit import rank_weight_bytes
from core.estimate.flops import (
    decode_chapter_derivation,
    decode_derivation,
    prefill_chapter_derivation,
    prefill_derivation,
)
from core.estimate.kv import M_KV, kv_derivation, kv_rates
from core.estimate.shape import ModelShape
from core.estimate.symbols import merged
from core.estimate.weights import Weight, expected_distinct_experts, weights

P, P_ACT, M_W, R_W = "P", "P_{\\mathrm{act}}", "M_{\\mathrm{w}}", "R_{\\mathrm{w}}"
Copies = Callable[[Weight], Factor | None]


def derivations(made: Estimate) -> dict[str, Derivation]:
    """Figure → derivation; what is null in the estimate is not there."""
    shape, request = made.shape, made.request
    n, batch = request.context, request.batch
    found = {
        "params.total": _parameters(shape, P, weights(shape), _all),
        "params.embedding": _parameters(shape, "P_{\\mathrm{table}}", weights(shape)[:1], lambda weight: None),
        "params.active": _parameters(shape, P_ACT, _used(shape), _chosen),
        "weight_bytes": _bytes(M_W, weights(shape), request.weight_dtypes, _all),
        "kv_bytes": kv_derivation(shape, n_tokens=n, batch=batch, dtypes=request.kv_dtypes),
        "decode.flops_chapter": decode_chapter_derivation(shape, n, batch),
        "decode.flops_exact": decode_derivation(shape, n, batch),
        "decode.bytes_read.weights": _bytes_read(shape, request.weight_dtypes, batch),
        "decode.intensity": _intensity(made),
        "prefill.flops_chapter": prefill_chapter_derivation(shape, n, batch),
        "prefill.flops_exact": prefill_derivation(shape, n, batch),
        "prefill.flops_exact_causal": prefill_derivation(shape, n, batch, causal=True),
        "prefill.bytes.weights_read": _bytes_read(shape, request.weight_dtypes, batch * n),
    }
    found["decode.bytes_read.kv"] = found["prefill.bytes.kv_written"] = found["kv_bytes"]
    if made.kv_bytes_per_token is not None:
        found["kv_bytes_per_token"] = kv_derivation(shape, n_tokens=1, dtypes=request.kv_dtypes)
    return found | _floors(made) | _fit(made)


def _parameters(shape: ModelShape, symbol: str, listed: Iterable[Weight], copies: Copies) -> Derivation:
    """Numbers, part by part; tensors that are equal in one term."""
    parts: dict[str, list[tuple[str, tuple[Factor, ...]]]] = {}
    for weight in listed:
        copied = copies(weight)
        product = weight.part, (*weight.factors, *([copied] if copied else []))
        parts.setdefault(weight.part, []).append(product)
    terms = (Term(factors, name) for products in parts.values() for name, factors in merged(shape, products))
    return Derivation(symbol, tuple(terms), source="counted")


def _used(shape: ModelShape) -> tuple[Weight, ...]:
    """Everything but an input table that is no head."""
    return weights(shape) if shape.tied_head else weights(shape)[1:]


def _all(weight: Weight) -> Factor | None:
    return Factor("E", weight.experts.n_experts) if weight.experts else None


def _chosen(weight: Weight) -> Factor | None:
    return Factor("k", weight.experts.n_active) if weight.experts else None


def _bytes(symbol: str, listed: Iterable[Weight], dtypes: WeightDtypes, copies: Copies) -> Derivation:
    """Bytes of the tensors, part by part: numbers times what a number takes, or rows times what a row takes."""
    parts: dict[tuple[str, str, Factor | None], list[Weight]] = {}
    for weight in listed:
        dtype = dtypes.of(weight.part, weight.follows_part)
        parts.setdefault((weight.part, dtype.name, copies(weight)), []).append(weight)
    terms = []
    for (part, _, copied), members in parts.items():
        numbers = sum(member.size for member in members)
        own = sum(member.bytes_of(dtypes) for member in members)
        per_number = Fraction(own, numbers)
        factors = [
            Factor("P", numbers, "one_expert" if copied else part),
            *([copied] if copied else []),
            Factor("", per_number.numerator),
        ]
        terms.append(Term(tuple(factors), part, over=per_number.denominator))
    return Derivation(symbol, tuple(terms), "B", source="format")


def _bytes_read(shape: ModelShape, dtypes: WeightDtypes, n_positions: int) -> Derivation:
    """Each weight once, of the experts as many as are expected to be chosen."""

    def met(weight: Weight) -> Factor | None:
        if weight.experts is None:
            return None
        return Factor("E_{\\mathrm{met}}", Real(expected_distinct_experts(weight.experts, n_positions)))

    return _bytes(R_W, [weight for weight in weights(shape) if weight.multiplies], dtypes, met)


def _intensity(made: Estimate) -> Derivation:
    read = Factor("R", made.decode.weights_read + made.decode.kv_read)
    flops = Factor("C", made.decode.flops_exact)
    return Derivation("I", (Term((flops,)),), "FLOP/B", over=(read,), source="definition")


def _floors(made: Estimate) -> dict[str, Derivation]:
    """Two times for each phase; the floor is the longer one."""
    card = made.request.accelerator
    peak = peak_flops(card, made.request.weight_dtypes.rest) if card else None
    if card is None or peak is None or made.decode.floor is None or made.prefill.floor is None:
        return {}
    ranks = Factor("N", made.request.ranks)
    found: dict[str, Derivation] = {}
    for phase, flops, times in (
        ("decode", made.decode.flops_exact, made.decode.floor),
        ("prefill", made.prefill.flops_exact_causal, made.prefill.floor),
    ):
        of_rank = "rank" if made.request.ranks > 1 else ""
        moved = Factor("R", round(times.memory_s * card.bandwidth_bytes_per_s), of_rank)
        over = (Factor("\\pi", round(peak)), ranks) if made.request.ranks > 1 else (Factor("\\pi", round(peak)),)
        compute = Derivation("t_C", (Term((Factor("C", flops),)),), "s", over=over, source="floor")
        bandwidth = Factor("\\omega", round(card.bandwidth_bytes_per_s))
        memory = Derivation("t_R", (Term((moved,)),), "s", over=(bandwidth,), source="floor")
        found |= {f"{phase}.compute_s": compute, f"{phase}.memory_s": memory}
        found[f"{phase}.time_floor_s"] = compute if times.bound == "compute" else memory
    return found


def _fit(made: Estimate) -> dict[str, Derivation]:
    card, request = made.request.accelerator, made.request
    if card is None or made.fit is None:
        return {}
    share = Fraction(str(request.memory_fraction))
    memory = Factor("M_{\\mathrm{card}}", card.memory_bytes), Factor("", share.numerator)
    of_rank = "rank" if request.ranks > 1 else ""
    shared_out = "\\lceil M_{\\mathrm{w}}/N \\rceil" if of_rank else M_W
    own_weights = rank_weight_bytes(made.shape, request.weight_dtypes, request.ranks)
    kv = kv_derivation(
        made.shape, n_tokens=request.context, batch=request.batch, dtypes=request.kv_dtypes, ranks=request.ranks
    )
    weight, capacity = Factor(shared_out, own_weights), Factor("M_{\\mathrm{cap}}", made.fit.capacity_bytes)
    room = Term((capacity,)), Term((weight,), sign=-1)
    found = {
        "fit.capacity_bytes": Derivation(
            "M_{\\mathrm{cap}}", (Term(memory),), "B", over=(Factor("", share.denominator),), floored=True
        ),
        "fit.needed_bytes": Derivation(
            "M_{\\mathrm{need}}", (Term((weight,)), Term((Factor(M_KV, kv.whole, of_rank),))), "B"
        ),
    }
    if made.fit.max_batch:
        one = Factor(M_KV, kv.whole // request.batch, "one_sequence_on_a_rank" if of_rank else "one_sequence")
        found["fit.max_batch"] = Derivation("B_{\\max}", room, over=(one,), floored=True)
    if made.fit.max_context:
        found["fit.max_context"] = _max_context(made, made.fit.max_context, room)
    return {name: replace(derivation, source="fit") for name, derivation in found.items()}


def _max_context(made: Estimate, longest: int, room: tuple[Term, ...]) -> Derivation:
    """What windows hold at most is taken off the room; the rest is shared by the layers that still grow."""
    rates = kv_rates(made.shape, made.request.kv_dtypes, made.request.ranks)
    batch = made.request.batch
    stopped = [rate for rate in rates if rate.window is not None and rate.window <= longest]
    held = batch * sum(rate.n_bytes * (rate.window or 0) for rate in stopped)
    slope = sum(rate.n_bytes for rate in rates if rate not in stopped)
    terms = (*room, Term((Factor(M_KV, held, "in_windows"),), sign=-1)) if stopped else room
    over = (Factor("B", batch), Factor("m_{\\mathrm{KV}}", slope, "rank" if made.request.ranks > 1 else ""))
    return Derivation("n_{\\max}", terms, over=over, floored=True)
