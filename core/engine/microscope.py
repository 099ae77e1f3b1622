"""A layer of a past step, computed again an operator at a time, with a clock at each.

The run is only read: the pass works on a copy of the cache's columns that the step saw, or, where the run keeps none
(without a cache, or dropped), on columns computed anew. The layer is run by the very functions of the pass
(`Transformer`, `core.model.attention`), and between two readings all other layers run where there is time for that, so
that the processor's caches are as a step finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from core.engine.dissection import Dissection, Timed, dissection
from core.engine.layer_at_work import LayerAtWork
from core.engine.prefix import chunk_for
from core.engine.run import Run
from core.estimate.kv import kv_bytes
from core.model.cached_attention import CachedAttention
from core.model.device import Stopwatch
from core.model.kv_cache import KVCache
from core.model.transformer import Transformer

READING_SECONDS = 0.4
"""How long the clock is read, unless a few readings take longer."""
LEAST_READINGS, MOST_READINGS = 3, 30
COLD_READINGS = 8
"""The other layers run between two readings where at least so many fit."""


class PassAgain:
    """A pass of one sequence behind the columns of a cache, to be run in parts; the cache counts none of it."""

    def __init__(self, model: Transformer, ids: Tensor, cache: KVCache) -> None:
        self.model, self.cache, self._ids, self.n_new = model, cache, ids, ids.shape[0]
        cache.reserve(self.n_new)
        self._attend = CachedAttention([cache], self.n_new, model.activation_dtype).attend
        self.rotations = model.rotations([cache.n_tokens], self.n_new)

    def embedded(self) -> Tensor:
        """What goes into the first layer: [R, d]."""
        return self.model.embed(self._ids)

    def through(self, layers: range, x: Tensor) -> Tensor:
        """Through these layers, one after another: [R, d]."""
        self.model.use_threads(self.n_new)
        for index in layers:
            x = self.model.through_layer(index, x, self.rotations, self._attend)
        return x


class Microscope:
    """One layer of one step under the clock. Made in the thread that steps the run; `points` need nothing of it more.

    `points` are for the engine's exclusive slot: where the columns before the measured pass have to be computed again,
    a chunk each; then the pass up to the layer, then the rest of it; the last one measures and returns the
    `Dissection`. None takes longer than a chunk does or than the readings. Each can be repeated.
    """

    def __init__(self, run: Run, step: int, layer: int) -> None:
        """Raises IndexError and ValueError for a step or a layer that does not exist."""
        self._model = run.model
        self.counted = dissection(run.model, run.config, run.steps[step], step, layer)
        made = self.counted.made
        self._n_past = made.n_past
        self._ids = torch.tensor(run.ids[: made.n_past + made.n_new], device=run.model.device.torch_device)
        has_columns = run.cache is not None and run.cache.n_tokens >= made.n_past
        self._cache = run.cache.first(made.n_past) if run.cache and has_columns else run.model.transformer.new_cache()
        self._again: PassAgain | None = None
        self._given = self._last = self._ids  # what goes into the layer, and the newest row behind the last one
        self._seconds = [0.0, 0.0]  # of the pass, up to the layer and from there on

    @property
    def n_bytes(self) -> int:
        """What its copy of the cache takes, in whole blocks."""
        block = self._cache.block_tokens
        n_reserved = -(-len(self._ids) // block) * block
        return int(kv_bytes(self._model.shape, n_tokens=n_reserved, dtypes=self._model.kv_dtypes))

    @property
    def points(self) -> list[Callable[[], Dissection | None]]:
        """What is to be called, one after another."""
        chunk = chunk_for(self._model.device)
        starts = range(self._cache.n_tokens, self._n_past, chunk)
        fill = (partial(self._fill, start, min(start + chunk, self._n_past)) for start in starts)
        return [*fill, self._lead_up, self._go_on, self._measure]

    @torch.inference_mode()
    def _fill(self, start: int, end: int) -> None:
        """Computes the columns start … end−1 anew."""
        self._cache.truncate(start)
        self._model.transformer.hidden(self._ids[None, start:end], [self._cache])

    @torch.inference_mode()
    def _lead_up(self) -> None:
        """The step's own tokens through the layers below."""
        self._again = PassAgain(self._model.transformer, self._ids[self._n_past :], self._cache)
        with Stopwatch(self._model.device) as watch:
            self._given = self._again.through(range(self.counted.layer), self._again.embedded())
        self._seconds[0] = watch.seconds

    @torch.inference_mode()
    def _go_on(self) -> None:
        """The rest of the pass, the head included."""
        assert self._again is not None
        with Stopwatch(self._model.device) as watch:
            layers = range(self.counted.layer, self.counted.n_layers)
            self._last = self._again.through(layers, self._given)[-1:]
            self._model.transformer.logits(self._last)
        self._seconds[1] = watch.seconds

    @torch.inference_mode()
    def _measure(self) -> Dissection:
        """Readings of every operator, until there is no time for more."""
        assert self._again is not None
        again, counted, transformer = self._again, self.counted, self._model.transformer
        work = LayerAtWork(transformer, counted.layer, self._given, self._cache, again.rotations)
        readings: dict[tuple[str, ...], list[float]] = {}
        pass_seconds = sum(self._seconds)
        is_cold = pass_seconds * COLD_READINGS <= READING_SECONDS
        self._read(work, {})  # to warm up
        n_readings, ends = 0, time.perf_counter() + READING_SECONDS
        while n_readings < LEAST_READINGS or (n_readings < MOST_READINGS and time.perf_counter() < ends):
            if is_cold:
                again.through(range(counted.layer), again.embedded())
            self._read(work, readings)
            if is_cold:
                again.through(range(counted.layer + 1, counted.n_layers), work.x)
            self._read_head(readings)
            n_readings += 1
        timings = tuple(Timed(names, median(seconds)) for names, seconds in readings.items())
        return replace(counted, timings=timings, n_readings=n_readings, pass_seconds=pass_seconds)

    def _read(self, work: LayerAtWork, readings: dict[tuple[str, ...], list[float]]) -> None:
        """The layer once, a reading of each operator."""
        self._model.transformer.use_threads(len(self._given))
        for names, operator in work.operators():
            with Stopwatch(self._model.device) as watch:
                operator()
            readings.setdefault(names, []).append(watch.seconds)

    def _read_head(self, readings: dict[tuple[str, ...], list[float]]) -> None:
        transformer = self._model.transformer
        transformer.use_threads(1)
        with Stopwatch(self._model.device) as watch:
            normed = transformer.norm(self._last, transformer.final_norm)
        readings.setdefault(("final_norm",), []).append(watch.seconds)
        with Stopwatch(self._model.device) as watch:
            transformer.head(normed).float()
        readings.setdefault(("head",), []).append(watch.seconds)


def dissect(run: Run, step: int, layer: int) -> Dissection:
    """All points of a microscope at once, for who has the engine to itself."""
    found: Dissection | None = None
    for point in Microscope(run, step, layer).points:
        found = point()
    assert found is not None
    return found
