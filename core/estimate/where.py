"""Where the time of a pass goes, as figures by name with their derivations: ridge, ceilings, limits, plain attention.

Beside the figures of `core.estimate.estimate`, under names of their own; built on the card of the request, and null
where there is none, where its peak is not known, or where nothing limits.
"""

from __future__ import annotations

from typing import Any

from core.estimate.attention_roof import attention_roof
from core.estimate.batching import (
    Count,
    all_weights_read,
    ceiling,
    compute_bound_batch,
    context_limit,
    line_at,
    one_cache,
    wanted_when_full,
)
from core.estimate.derivation import FOUR, TWO, Derivation, Factor, Real, Term, Unit
from core.estimate.estimate import Estimate
from core.estimate.flops import attention_costs, chapter_params, decode_flops, weights_multiplied
from core.estimate.kv import M_KV
from core.estimate.roofline import Roof, roof_of
from core.estimate.score_table import (
    ACTIVATION_BYTES,
    TABLE_PASSES,
    attention_flops,
    attention_intensity,
    attention_traffic,
    outweighs_at,
    table_bytes,
    table_traffic,
)

RIDGE = "I^{*}"


def roof(made: Estimate) -> Roof | None:
    """The published roof of the request's card; None without one."""
    request = made.request
    return roof_of(request.accelerator, request.weight_dtypes.rest, request.ranks) if request.accelerator else None


def where_json(made: Estimate) -> dict[str, Any]:
    """The figures, in the form of the estimate's own: FLOP a byte, positions, sequences, bytes.

    `limit_full` is 0 where the card has no room for a cache at all.
    """
    shape, request, n = made.shape, made.request, made.request.context
    own = roof(made)
    batching: dict[str, float | None] = dict.fromkeys(("limit_chapter", "limit", "limit_full", "batch"))
    if own is not None:
        wanted = wanted_when_full(shape, request, own)
        batching = {
            "limit_chapter": context_limit(shape, request, own.ridge, "chapter"),
            "limit": context_limit(shape, request, own.ridge),
            "limit_full": context_limit(shape, request, wanted) if wanted else 0,
            "batch": compute_bound_batch(shape, request, own, n),
        }
    has_attention = bool(attention_costs(shape, False))
    return {
        "roof": {"ridge": own and own.ridge},
        "batching": {
            "ceiling": ceiling(shape, request, n),
            **{name: None if value is None else round(value) for name, value in batching.items()},
        },
        "attention": {"roof": attention_roof(shape, request)},
        "scores": {
            "intensity": attention_intensity(shape, n) if has_attention else None,
            "outweighs_at": round(found) if own and (found := outweighs_at(shape, own)) else None,
            "table_bytes": table_bytes(shape, n, request.batch),
        },
    }


def where_derivations(made: Estimate) -> dict[str, Derivation]:
    """Figure → derivation; what is null is not there."""
    shape, request, n = made.shape, made.request, made.request.context
    cache, own = one_cache(shape, request, n), roof(made)
    found: dict[str, Derivation] = {}
    if cache:
        flops = Factor("C", int(decode_flops(shape, n)), "one_sequence")
        kept = Factor(M_KV, cache, "one_sequence")
        found["batching.ceiling"] = _quotient("I_{\\infty}", (flops,), (kept,), "definition", "FLOP/B")
        found |= _attention_roof(made)
    if attention_costs(shape, False):
        found |= _scores(made, own)
    if own is None or request.accelerator is None:
        return found
    peak, bandwidth = Factor("\\pi", round(own.peak_flops)), Factor("\\omega", round(own.bandwidth_bytes_per_s))
    found["roof.ridge"] = _quotient(RIDGE, (peak,), (bandwidth,), "definition", "FLOP/B")
    ridge = Factor(RIDGE, Real(own.ridge))
    counts: tuple[tuple[str, Count], ...] = (("batching.limit_chapter", "chapter"), ("batching.limit", "exact"))
    for name, count in counts:
        found |= _limit(made, name, ridge, count)
    wanted = wanted_when_full(shape, request, own)
    if wanted:
        found |= _limit(made, "batching.limit_full", Factor("I^{*}_{\\mathrm{cap}}", Real(wanted)), "exact")
    gained = int(decode_flops(shape, n)) - own.ridge * cache
    if gained > 0:
        read = Factor("R", all_weights_read(shape, request), "weights")
        above = Factor(f"(C - {RIDGE} {M_KV})", Real(gained))
        found["batching.batch"] = _quotient("B^{*}", (ridge, read), (above,), "roofline")
    return found


def _quotient(
    symbol: str, above: tuple[Factor, ...], below: tuple[Factor, ...], source: str, unit: Unit = ""
) -> Derivation:
    return Derivation(symbol, (Term(above),), unit, over=below, source=source)


def _limit(made: Estimate, name: str, wanted: Factor, count: Count) -> dict[str, Derivation]:
    """n from (fixed FLOP + c·n) = I·(fixed bytes + m·n), on the straight piece where it lies."""
    shape, request = made.shape, made.request
    n = context_limit(shape, request, float(wanted.value), count)
    if n is None:
        return {}
    line = line_at(shape, request, int(n), count)
    divisor = float(wanted.value) * line.kv_per_token - line.flops_per_token
    per_token = "4Ld" if count == "chapter" else "c"
    below = Factor(f"({wanted.symbol} m_{{\\mathrm{{KV}}}} - {per_token})", Real(divisor))
    fixed = (TWO, Factor("P", chapter_params(shape))) if count == "chapter" else (Factor("C_0", line.flops),)
    terms = [Term(fixed)]
    if line.kv:
        terms.append(Term((wanted, Factor(M_KV, line.kv, "in_windows")), sign=-1))
    return {name: Derivation("n_{\\max}", tuple(terms), over=(below,), source="roofline")}


def _attention_roof(made: Estimate) -> dict[str, Derivation]:
    """Per position: FLOP of one more key and value against their bytes."""
    shape, request = made.shape, made.request
    windows = [group.attention.window or 0 for group in shape.groups if group.attention is not None]
    line = line_at(shape, request, max(windows) + 1)
    if not line.kv_per_token:
        return {}
    above, below = Factor("c", line.flops_per_token), Factor("m_{\\mathrm{KV}}", line.kv_per_token)
    return {"attention.roof": _quotient("I_{\\mathrm{att}}", (above,), (below,), "definition", "FLOP/B")}


def _scores(made: Estimate, own: Roof | None) -> dict[str, Derivation]:
    """Plain attention: FLOP over bytes, the table's own bytes, and where they outweigh the linear layers."""
    shape, n, batch = made.shape, made.request.context, made.request.batch
    heads = max(int(cost.scores[1].amount) for cost in attention_costs(shape, False))
    flops = Factor("C", int(attention_flops(shape, n)), "attention")
    moved = Factor("R", attention_traffic(shape, n), "attention")
    squared = Factor("n", n, power=2)
    two_bytes = Factor("", ACTIVATION_BYTES)
    found = {
        "scores.intensity": _quotient("I_{\\mathrm{plain}}", (flops,), (moved,), "definition", "FLOP/B"),
        "scores.table_bytes": Derivation(
            "M_{S}", (Term((Factor("B", batch), Factor("h", heads), squared, two_bytes)),), "B", source="counted"
        ),
    }
    if own is not None:
        all_heads = Factor("(L h)", int(table_traffic(shape, 1)) // (TABLE_PASSES * ACTIVATION_BYTES))
        below = (FOUR, two_bytes, all_heads, Factor(RIDGE, Real(own.ridge)))
        in_layers = Factor("P", weights_multiplied(shape)[0], "in_layers")
        found["scores.outweighs_at"] = _quotient("n_{S}", (TWO, in_layers), below, "roofline")
    return found
