"""Prefill against n, and one token with the cache against one without: both from the same passes.

Whoever has no cache sends all n positions through the layers for the n-th token, which is what a prefill does. Measured
in the exclusive slot, chunk by chunk; each repeat goes through the contexts the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from core.engine.exclusive import Measurement
from core.engine.prefix import chunk_for
from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.kv import kv_bytes
from core.model.device import Stopwatch
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.load import LanguageModel
from core.refusal import Refusal

MOST_POSITIONS = 40_000
"""Through the layers, all repeats together: a minute of SmolLM2 on two cores."""
N_TIMED = 3


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """At one context n: seconds of a pass over all n positions, and of the n-th position alone behind a cache of n − 1.

    Medians of `n_repeats`; FLOP as they are multiplied, chunk by chunk.
    """

    context: int
    n_repeats: int
    whole_s: float
    cached_s: float
    whole_flops: int
    cached_flops: int


class PhaseSweep:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, contexts: Sequence[int], repeats: int) -> None:
        """Raises Refusal for a context beyond the model's, and for more positions than are sent here."""
        self._model, self._contexts = model, tuple(sorted(contexts))
        limit = model.config.context_limit
        if self._contexts[-1] > limit:
            raise Refusal("sweep.context_too_long", context=self._contexts[-1], model=model.name, limit=limit)
        n_positions = repeats * sum(self._contexts)
        if n_positions > MOST_POSITIONS:
            raise Refusal("sweep.too_many_positions", positions=n_positions, most=MOST_POSITIONS)
        self._spots = [
            (context, repeat)
            for repeat in range(repeats)
            for context in (reversed(self._contexts) if repeat % 2 else self._contexts)
        ]
        usable = min(model.tokenizer.vocab_size, model.config.vocab_size)
        generator = torch.Generator().manual_seed(0)
        self._ids = torch.randint(0, usable, (1, self._contexts[-1]), generator=generator)  # (1, n)
        self._cache: KVCache = model.transformer.new_cache()
        self._chunks: dict[tuple[int, int], dict[int, float]] = {}
        self._cached: dict[tuple[int, int], float] = {}

    @property
    def result(self) -> tuple[PhaseTimes, ...]:
        """What has been measured by now, n rising: contexts with one repeat at least."""
        found, shape = [], self._model.shape
        for context in self._contexts:
            spots = [spot for spot in list(self._cached) if spot[0] == context]
            if spots:
                found.append(
                    PhaseTimes(
                        context=context,
                        n_repeats=len(spots),
                        whole_s=median(sum(self._chunks[spot].values()) for spot in spots),
                        cached_s=median(self._cached[spot] for spot in spots),
                        whole_flops=int(prefill_flops(shape, context, chunk=chunk_for(self._model.device))),
                        cached_flops=int(decode_flops(shape, context)),
                    )
                )
        return tuple(found)

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot."""
        model = self._model
        held = kv_bytes(model.shape, n_tokens=self._contexts[-1], dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)
        return Measurement("phases", self.points(), n_bytes=int(held))

    def points(self) -> list[Callable[[], None]]:
        """Every chunk of every pass, and behind each pass its cached step. A point may be measured again."""
        step = chunk_for(self._model.device)
        points: list[Callable[[], None]] = []
        for spot in self._spots:
            begins = range(0, spot[0], step)
            points += [partial(self._chunk, spot, begin, min(begin + step, spot[0])) for begin in begins]
            points.append(partial(self._step, spot))
        return points

    def _chunk(self, spot: tuple[int, int], begin: int, end: int) -> None:
        model = self._model
        self._cache.truncate(begin)
        with torch.inference_mode(), Stopwatch(model.device) as watch:
            hidden = model.transformer.hidden(self._on_device(begin, end), [self._cache])  # (1, n_new) → (1, n_new, d)
            if end == spot[0]:
                model.transformer.logits(hidden[:, -1])  # (1, d) → (1, vocab)
        self._chunks.setdefault(spot, {})[begin] = watch.seconds

    def _step(self, spot: tuple[int, int]) -> None:
        model, n, seconds = self._model, spot[0], []
        for _ in range(1 + N_TIMED):  # the first warms up
            self._cache.truncate(n - 1)
            self._cache.reserve(1)
            with torch.inference_mode(), Stopwatch(model.device) as watch:
                hidden = model.transformer.hidden(self._on_device(n - 1, n), [self._cache])  # (1, 1) → (1, 1, d)
                model.transformer.logits(hidden[:, -1])  # (1, d) → (1, vocab)
            seconds.append(watch.seconds)
        self._cached[spot] = median(seconds[1:])

    def _on_device(self, begin: int, end: int) -> torch.Tensor:
        return self._ids[:, begin:end].to(self._model.device.torch_device)
