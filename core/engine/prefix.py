"""A pass over a run's prefix, a chunk at a time: its prefill, its recomputing, or the refilling of a dropped cache.

Whoever drives it may let others work between two chunks; the results are those of one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import torch
from torch import Tensor

from core.engine.finish import Pass, finish
from core.engine.recorder import RecordConfig, Recorder
from core.engine.run import Run
from core.engine.trace import Phase, StepEvent
from core.model.device import Device, Stopwatch


def chunk_for(device: Device) -> int:
    """Positions a pass takes of a prefix where others share the device: they wait for one chunk at most.

    128 rows are a fifth of a second of SmolLM2 on two CPU cores; a GPU needs more of them to be busy at all.
    """
    return 128 if device.kind == "cpu" else 1024


def n_common(cached: Iterable[int], ids: Iterable[int]) -> int:
    """How many tokens at the head of both are the same: so many columns of a cache for the one serve the other."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(cached, ids, strict=False)))


class PrefixPass:
    """One run's way through its prefix. `advance` until `done`, then `finish`.

    What it is follows from the run: without a cache its whole prefix is recomputed (into a cache that goes with the
    pass); with an empty one and no step yet it is the prefill; with an empty one and steps, the refill of a cache that
    was dropped, which is no step of the run and leaves no record.
    """

    def __init__(self, run: Run) -> None:
        """Raises ValueError for a run whose cache holds something already, or that has nothing to put in it."""
        if run.cache is not None and (run.cache.n_tokens or (run.steps and run.is_resident)):
            raise ValueError("the cache of this run is filled already")
        self.run = run
        self.is_refill = run.cache is not None and bool(run.steps)
        self._cache = run.model.transformer.new_cache() if run.cache is None else run.cache
        self._ids = run.ids[: run.n_to_cache] if self.is_refill else run.ids
        self._chunk = run.config.prefill_chunk or len(self._ids)
        self._sizes: list[int] = []
        self._seconds = 0.0
        self._queries: list[Tensor] = []
        self._recorder = Recorder([run.config.record], run.check_interrupt)
        self._last: Tensor | None = None  # (1, d): the newest position behind the last layer

    @property
    def n_done(self) -> int:
        """Positions that are through the layers."""
        return sum(self._sizes)

    @property
    def n_tokens(self) -> int:
        """Positions of the prefix."""
        return len(self._ids)

    @property
    def done(self) -> bool:
        """Whether only `finish` is left."""
        return self.n_done == self.n_tokens

    def advance(self) -> None:
        """One chunk through the layers.

        Raises Interrupted when the run's owner asked for it. After any exception the run is as it was before the pass.
        """
        run, start = self.run, self.n_done
        end = min(start + self._chunk, self.n_tokens)
        n_newest = max(0, end - max(start, len(run.prompt_ids) - 1)) if self.is_refill else 1
        record = run.config.record if n_newest else RecordConfig()
        self._recorder = Recorder([record], run.check_interrupt, n_newest=n_newest)
        model = run.model
        with run.whole_steps(), torch.inference_mode():
            with Stopwatch(model.device) as watch:
                ids = torch.tensor([self._ids[start:end]], device=model.device.torch_device)  # (1, n_new)
                hidden = model.transformer.hidden(ids, [self._cache], self._recorder)
            self._last = hidden[:, -1]
            self._seconds += watch.seconds
            self._sizes.append(end - start)
            if self.is_refill and (queries := self._recorder.queries(0, self._cache.dtype)) is not None:
                self._queries.extend(queries)

    def finish(self) -> StepEvent | None:
        """Through the head, and the token is chosen; None for a refill, which only gives the run its memory back."""
        run, model = self.run, self.run.model
        if self.is_refill:
            run.queries = self._queries
            return None
        assert self._last is not None
        with run.whole_steps(), torch.inference_mode():
            with Stopwatch(model.device) as watch:
                logits = model.transformer.logits(self._last)  # (1, d) → (1, vocab)
            phase = Phase.RECOMPUTE if run.cache is None else Phase.PREFILL
            done = Pass(phase, self._cache, tuple(self._sizes), self._seconds + watch.seconds)
            return finish(run, done, logits[0], self._recorder, 0)

    def whole(self) -> StepEvent | None:
        """All of it at once."""
        while not self.done:
            self.advance()
        return self.finish()
