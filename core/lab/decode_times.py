"""How long a decode step takes at a few context lengths: one sequence, a real cache that is filled on the way.

The ids are repeated until they are long enough; their keys and values are computed as in any prefill, chunk by chunk,
and every length is timed a few times with the same last position. Every point may be measured again: it begins by
taking the cache back to where the point begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median

import torch

from core.engine.exclusive import Measurement
from core.engine.prefix import chunk_for
from core.estimate.kv import kv_bytes
from core.model.device import Stopwatch
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel

REPEATS = 7
"""Timed steps at a length; the median counts, so that the first, which has to warm up, does not."""


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """The median seconds of a decode step at a context length, the new position included."""

    n_tokens: int
    seconds: float


class DecodeTimes:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, ids: Sequence[int], contexts: Sequence[int]) -> None:
        """`contexts` rise, from 2 on. Raises Refusal for no ids, and for more than the model's context holds."""
        self._model, self._contexts = model, tuple(contexts)
        self._ids = list(islice(cycle(ids), self._contexts[-1])) if ids else []
        model.check_prompt(self._ids)
        self._cache = model.transformer.new_cache()
        self._seconds: dict[int, list[float]] = {n: [0.0] * REPEATS for n in self._contexts}
        self._n_timed: dict[int, int] = dict.fromkeys(self._contexts, 0)

    @property
    def result(self) -> tuple[DecodeTime, ...]:
        """The lengths that are done, as far as they came."""
        return tuple(DecodeTime(n, median(self._seconds[n])) for n in self._contexts if self._n_timed[n] == REPEATS)

    def measurement(self) -> Measurement:
        """All lengths for the exclusive slot."""
        model = self._model
        held = kv_bytes(model.shape, n_tokens=len(self._ids), dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)
        return Measurement("decode_times", self.points(), n_bytes=int(held))

    def points(self) -> list[Callable[[], None]]:
        """For each length the chunks that fill the cache up to its last position, then the timed steps."""
        points: list[Callable[[], None]] = []
        chunk, begin = chunk_for(self._model.device), 0
        for n in self._contexts:
            points += [partial(self._fill, start, min(start + chunk, n - 1)) for start in range(begin, n - 1, chunk)]
            points += [partial(self._time, n, repeat) for repeat in range(REPEATS)]
            begin = n - 1
        return points

    def _fill(self, begin: int, end: int) -> None:
        self._cache.truncate(begin)
        with torch.inference_mode():
            self._model.transformer.hidden(self._rows(begin, end), [self._cache])

    def _time(self, n: int, repeat: int) -> None:
        model = self._model
        self._cache.truncate(n - 1)
        with torch.inference_mode(), Stopwatch(model.device) as watch:
            newest = model.transformer.hidden(self._rows(n - 1, n), [self._cache])[:, -1]  # (1, 1, d) → (1, d)
            model.transformer.logits(newest)
        self._cache.truncate(n - 1)
        self._seconds[n][repeat], self._n_timed[n] = watch.seconds, repeat + 1

    def _rows(self, begin: int, end: int) -> torch.Tensor:
        return torch.tensor([self._ids[begin:end]], device=self._model.device.torch_device)  # (1, n_new)
