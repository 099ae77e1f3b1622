"""Why queries are not cached: a cache that keeps them too, and counts who reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.questions.question import Experiment, Given, Ids, Outcome, Quantity

if TYPE_CHECKING:
    from core.lab.query_cache import QueryCacheResult
    from core.model.load import LanguageModel


def query_cache(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """Decode steps with queries, keys and values kept."""
    from core.lab.query_cache import QueryCache  # torch takes seconds to import

    made = QueryCache(model, ids, given.n_new)
    n_layers = model.config.n_layers
    return Experiment(made.measurement(), lambda: query_cache_outcome(made.result, n_layers))


def query_cache_outcome(result: QueryCacheResult, n_layers: int) -> Outcome | None:
    """Whether decode steps read no earlier query, those of the position before alone, or more."""
    decoding = result.steps[1:]
    if len(decoding) < result.n_planned:
        return None
    read, change = result.earlier_read, result.largest_change
    facts = {
        **{kind: Quantity(getattr(read, kind), "") for kind in ("queries", "keys", "values")},
        **{f"without_{kind}": Quantity(getattr(change, kind), "") for kind in ("queries", "keys", "values")},
        "wasted": Quantity(result.wasted_bytes, "B"),
        "useful": Quantity(result.useful_bytes, "B"),
    }
    lines = {kind: tuple(getattr(step.earlier_read, kind) for step in decoding) for kind in ("queries", "keys")}
    one_each = n_layers * len(decoding)
    answer = "none" if read.queries == 0 else "previous" if read.queries == one_each else "all"
    return Outcome(answer=answer, facts=facts, lines=lines)
