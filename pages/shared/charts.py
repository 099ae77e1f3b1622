"""Charts and formulas of an estimate by name: for a page that is drawn, and for the live routes that move it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from core.estimate.curves import kv_against_batch, kv_against_context, kv_by_kind
from core.estimate.derivations import derivations
from core.estimate.estimate import Estimate
from core.estimate.plain import as_text
from core.estimate.where import where_derivations
from core.words import sentence
from pages.shared.compute_charts import COMPUTE_CHARTS
from pages.shared.figures.chart import Figure, Say
from pages.shared.figures.costs import kv_kinds, kv_memory
from pages.shared.numbers import count, scaled, scaled_bytes, significant
from pages.shared.time.charts import TIME_CHARTS


@lru_cache(maxsize=4)
def say_in(language: str, units: str) -> Say:
    """How figures speak to a reader of this language, in these units."""
    is_binary = units == "binary"
    return Say(
        language=language,
        bytes_unit="GiB" if is_binary else "GB",
        bytes_divisor=2**30 if is_binary else 10**9,
        written_bytes=partial(scaled_bytes, units=units),
        written_count=count,
        written_flops=scaled,
        written=significant,
    )


def _kv_memory(over: str, made: Estimate, say: Say) -> Figure:
    curves = (kv_against_context if over == "context" else kv_against_batch)(made.shape, made.request)
    room = made.fit.capacity_bytes - made.weight_bytes if made.fit else None
    return kv_memory(curves, over, made.kv_bytes, room, made.shape.has_latents, say)


CHARTS: dict[str, Callable[[Estimate, Say], Figure]] = {
    "kv_against_context": partial(_kv_memory, "context"),
    "kv_against_batch": partial(_kv_memory, "batch"),
    "kv_kinds": lambda made, say: kv_kinds(kv_by_kind(made.shape, made.request), say),
    **COMPUTE_CHARTS,
    **TIME_CHARTS,
}


def formulas(made: Estimate, figures: Iterable[str], language: str) -> dict[str, dict[str, str]]:
    """For each figure its formula in symbols and in numbers, as plain text."""
    wanted, found = list(figures), derivations(made)
    if any(name not in found for name in wanted):
        found |= where_derivations(made)
    texts = {}
    for name in wanted:
        if name in found:
            _, symbols, *others = as_text(found[name], lambda key: sentence(f"derivations.{key}", language)).split(
                " = "
            )
            texts[name] = {"symbols": symbols, "values": others[0]}
    return texts
