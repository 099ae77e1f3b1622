"""A decode step of sequences whose caches lie ready, through the engine's own pass for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from core.engine.run import Run, RunConfig
from core.engine.steps import decode_one_token
from core.engine.trace import StepEvent
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig

NO_TOKEN = RunConfig(max_new=1)
"""A run with one token that is to be computed, behind which none is chosen."""
GREEDY_TOKEN = RunConfig(max_new=2, sampling=SamplingConfig(temperature=0.0))
"""The same, and the likeliest token is chosen behind it."""


def decode_step(
    model: LanguageModel, rows: Sequence[Sequence[int]], caches: Sequence[KVCache], config: RunConfig = NO_TOKEN
) -> list[StepEvent]:
    """The newest id of each of B rows, behind a cache of all ids before it, in one pass; the caches are longer by one.

    The clock does not run while a cache grows, which happens at one step of 64 only. Raises ValueError for a cache that
    does not hold all ids of its row but the newest.
    """
    runs = []
    for row, cache in zip(rows, caches, strict=True):
        cache.reserve(1)
        run = Run(model, list(row[:-1]), config)
        run.cache = cache
        run.push_token(row[-1])
        runs.append(run)
    return decode_one_token(model, runs)
