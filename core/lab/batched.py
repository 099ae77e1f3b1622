"""Batching, measured: the same answers decoded one sequence at a time, and B of them together in one pass.

One prompt, and sequences that begin with its likeliest, second likeliest … next token, so that every sequence is
another text of the same length. All batch sizes take their n-th step one right after the other, so that what disturbs
the machine meets all alike; each has caches of its own. Tokens are chosen greedily, and no end token ends a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from core.engine.exclusive import Measurement, Point
from core.engine.trace import StepEvent
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.estimate.weights import weight_bytes_read
from core.lab.decode_step import GREEDY_TOKEN, decode_step
from core.lab.lane import Lane, cache_bytes, columns_difference, without_end_tokens
from core.lab.timeline import most_positions
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.refusal import Refusal

BATCHES = (1, 2, 4, 8)
N_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A decode step of B sequences together; bytes and FLOP are those of the last step, at context `n_tokens`.

    Attributes:
        seconds: of a step, the median of all; with B = 1 of all sequences, one at a time.
        weight_bytes_read: by the engine's ledger, once for all sequences; kv_bytes_read: of all their caches.
        bytes_read_formula: of both, by the estimate.
        kv_bytes: of all caches, by the tensors' own size.
        token_ids: what each sequence wrote, its first token left out.
        kv_difference: the largest |difference| of any key or value from the same sequences decoded alone.
    """

    batch: int
    n_tokens: int
    seconds: float
    weight_bytes_read: int
    kv_bytes_read: int
    bytes_read_formula: int
    kv_bytes: int
    kv_bytes_formula: int
    flops: int
    flops_formula: int
    token_ids: tuple[tuple[int, ...], ...]
    kv_difference: float

    @property
    def bytes_per_token(self) -> float:
        """Bytes read for each of the B tokens that the step gives."""
        return (self.weight_bytes_read + self.kv_bytes_read) / self.batch

    @property
    def seconds_per_token(self) -> float:
        """Of the step, divided by the tokens it gives."""
        return self.seconds / self.batch


@dataclass(frozen=True, slots=True)
class BatchResult:
    """All batch sizes, the smallest first; none before everything is measured.

    `first_ids`: the token each sequence begins with.
    """

    n_prompt: int
    first_ids: tuple[int, ...]
    points: tuple[BatchPoint, ...]
    n_disturbed: int = 0

    def by_bytes(self, point: BatchPoint) -> float:
        """How many times as fast as one at a time, if nothing but reading took time."""
        return self.points[0].bytes_per_token / point.bytes_per_token

    def speedup(self, point: BatchPoint) -> float:
        """How many times as many tokens a second as one at a time, by the clock."""
        return self.points[0].seconds_per_token / point.seconds_per_token

    def has_same_tokens(self, point: BatchPoint) -> bool:
        """Whether every sequence wrote what it wrote alone."""
        return point.token_ids == self.points[0].token_ids[: len(point.token_ids)]


class _Sequence:
    """One text on its way: ids, and a cache of all but the newest."""

    def __init__(self, ids: list[int], cache: KVCache) -> None:
        self.ids, self.cache = ids, cache

    def go_back(self, n_cached: int) -> None:
        self.cache.truncate(n_cached)
        del self.ids[n_cached + 1 :]


class BatchedDecoding:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        batches: Sequence[int] = BATCHES,
        n_steps: int = N_STEPS,
    ) -> None:
        """`batches` rises from 1. Raises Refusal for a prompt that cannot be fed, or that is too long for the steps."""
        model.check_prompt(prompt_ids)
        most = min(model.config.context_limit, most_positions(model.device)) - n_steps
        if len(prompt_ids) > most:
            raise Refusal("techniques.prompt_too_long", n_tokens=len(prompt_ids), most=most)
        self._model, self._batches, self._n_steps = model, tuple(batches), n_steps
        self._n_prompt = len(prompt_ids)
        self._lane = Lane(model.transformer, model.device, prompt_ids)
        self._rows: dict[int, list[_Sequence]] = {}  # batch → its sequences; of 1 all of them
        self._seconds: dict[tuple[int, int], list[float]] = {}  # (batch, step)
        self._events: dict[int, list[StepEvent]] = {}  # batch → of the newest step, a row each
        self._points: tuple[BatchPoint, ...] = ()
        self._n_disturbed = 0

    @property
    def result(self) -> BatchResult:
        """What has been measured by now."""
        firsts = tuple(row.ids[self._n_prompt] for row in self._rows.get(1, ()))
        return BatchResult(self._n_prompt, firsts, self._points, self._n_disturbed)

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot: the prompt's cache, and one for each sequence of each batch size."""
        n_caches = 1 + self._batches[-1] + sum(self._batches[1:])
        n_bytes = n_caches * cache_bytes(self._model, self._n_prompt + self._n_steps)

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        return Measurement("batched", self.points(), n_bytes=n_bytes, on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """The prompt, the sequences, the steps of all batch sizes, and the comparison. A point may be done again."""
        steps = (partial(self._step, step) for step in range(self._n_steps))
        return [*self._lane.fill_points(), self._begin, *steps, self._compare]

    def _begin(self) -> None:
        """The prompt's last position, and for each sequence a copy of the cache and a first token of its own."""
        lane, most = self._lane, self._batches[-1]
        lane.go_back(self._n_prompt)
        scores = without_end_tokens(self._model, lane.next_logits())
        firsts = scores.topk(most).indices.tolist()
        with torch.inference_mode():
            self._rows = {
                batch: [
                    _Sequence([*lane.ids, first], lane.cache.first(self._n_prompt))
                    for first in firsts[: most if batch == 1 else batch]
                ]
                for batch in self._batches
            }

    def _step(self, step: int) -> None:
        """The step of that number: each sequence alone, then every batch."""
        for batch, rows in self._rows.items():
            for row in rows:
                row.go_back(self._n_prompt + step)
            passes = [[row] for row in rows] if batch == 1 else [rows]
            stepped = [self._pass(through) for through in passes]
            self._seconds[batch, step] = [events[0].seconds for events in stepped]
            self._events[batch] = [event for events in stepped for event in events]

    def _pass(self, rows: list[_Sequence]) -> list[StepEvent]:
        events = decode_step(self._model, [row.ids for row in rows], [row.cache for row in rows], GREEDY_TOKEN)
        for row, event in zip(rows, events, strict=True):
            assert event.sampled is not None
            row.ids.append(event.sampled.token_id)
        return events

    def _compare(self) -> None:
        self._points = tuple(self._point(batch) for batch in self._batches)

    def _point(self, batch: int) -> BatchPoint:
        model, rows, events = self._model, self._rows[batch], self._events[batch][:batch]
        n = self._n_prompt + self._n_steps
        cached = int(kv_bytes(model.shape, n_tokens=n, batch=batch, dtypes=model.kv_dtypes))
        weights = int(weight_bytes_read(model.shape, WeightDtypes(DTYPES[model.dtype_name]), batch))
        alone = self._rows[1]
        return BatchPoint(
            batch=batch,
            n_tokens=n,
            seconds=median(seconds for step in range(self._n_steps) for seconds in self._seconds[batch, step]),
            weight_bytes_read=events[0].weight_bytes_read,
            kv_bytes_read=sum(event.kv_bytes_read for event in events),
            bytes_read_formula=weights + cached,
            kv_bytes=sum(row.cache.used_bytes for row in rows[:batch]),
            kv_bytes_formula=cached,
            flops=sum(event.flops_exact for event in events),
            flops_formula=int(decode_flops(model.shape, n, batch)),
            token_ids=tuple(tuple(row.ids[self._n_prompt + 1 :]) for row in rows),
            kv_difference=max(
                columns_difference(row.cache, other.cache) for row, other in zip(rows, alone, strict=False)
            ),
        )
