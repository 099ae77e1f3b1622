"""Chunked prefill, measured: the same prompt in one pass and in chunks, what is equal and what is not.

The prompt is repeated or cut to a length of its own. Chunk sizes rise to the one pass, which all others are compared
with: the logits behind the last position, and every cached key and value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.engine.finish import Pass, bytes_read
from core.engine.trace import Phase
from core.estimate import traffic
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.flops import prefill_flops
from core.estimate.kv import kv_bytes
from core.lab.lane import (
    best_going_on,
    cache_bytes,
    columns_difference,
    difference,
    fill,
    logits_of_newest,
    usable,
)
from core.model.device import Stopwatch
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel

CHUNKS = (32, 64, 128)
N_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPoint:
    """A prefill in passes of `chunk` positions.

    Attributes:
        pass_seconds: of each pass; the head is part of the last one.
        weight_bytes_read, kv_bytes_read: by the engine's ledger: the layers' matrices once a pass, the head's once, and
            what earlier passes have cached; bytes_read_formula: of both, operator by operator.
        flops: of the pairs that the mask leaves; flops_multiplied: of what is really multiplied, since each pass
            computes its whole rectangle of pairs.
        logit_difference, kv_difference: the largest from the one pass.
        token_id: the likeliest token behind the prompt.
    """

    chunk: int
    pass_seconds: tuple[float, ...]
    weight_bytes_read: int
    kv_bytes_read: int
    bytes_read_formula: int
    flops: int
    flops_multiplied: int
    kv_bytes: int
    kv_bytes_formula: int
    logit_difference: float
    kv_difference: float
    token_id: int

    @property
    def n_passes(self) -> int:
        return len(self.pass_seconds)

    @property
    def seconds(self) -> float:
        """Of all passes."""
        return sum(self.pass_seconds)

    @property
    def longest_s(self) -> float:
        """The longest pass: what somebody waits who comes as it begins."""
        return max(self.pass_seconds)

    @property
    def bytes_read(self) -> int:
        """Weights and cache, of all passes."""
        return self.weight_bytes_read + self.kv_bytes_read


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """All chunk sizes, rising, the one pass last; none before everything is measured."""

    n_prompt: int
    n_tokens: int
    points: tuple[ChunkPoint, ...]
    n_disturbed: int = 0

    @property
    def whole(self) -> ChunkPoint:
        """The prefill in one pass."""
        return self.points[-1]

    @property
    def largest_difference(self) -> float:
        """Of any logit behind the prompt from the one pass's, over all chunk sizes."""
        return max(point.logit_difference for point in self.points)

    @property
    def largest_kv_difference(self) -> float:
        """Of any cached number from the one pass's, over all chunk sizes."""
        return max(point.kv_difference for point in self.points)

    @property
    def has_same_token(self) -> bool:
        """Whether the likeliest token behind the prompt is one for all chunk sizes."""
        return len({point.token_id for point in self.points}) == 1


class ChunkedPrefill:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        chunks: Sequence[int] = CHUNKS,
        n_tokens: int = N_TOKENS,
    ) -> None:
        """`chunks` of `n_tokens` and more are left out. Raises Refusal for a prompt that cannot be fed."""
        model.check_prompt(prompt_ids)
        n = min(n_tokens, model.config.context_limit)
        self._model, self._n_prompt, self._n = model, len(prompt_ids), n
        self._ids = [prompt_ids[position % len(prompt_ids)] for position in range(n)]
        self._chunks = [*sorted(chunk for chunk in chunks if chunk < n), n]
        self._caches: dict[int, KVCache] = {}  # chunk → what its passes wrote
        self._logits: dict[int, Tensor] = {}  # (usable) behind the last position
        self._seconds: dict[int, dict[int, float]] = {}  # chunk → first position of a pass → seconds
        self._points: tuple[ChunkPoint, ...] = ()
        self._n_disturbed = 0

    @property
    def result(self) -> ChunkResult:
        """What has been measured by now."""
        return ChunkResult(self._n_prompt, self._n, self._points, self._n_disturbed)

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot: a cache and a row of logits for each chunk size."""
        model = self._model
        n_bytes = len(self._chunks) * (cache_bytes(model, self._n) + 4 * model.config.vocab_size)

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        return Measurement("chunked", self.points(), n_bytes=n_bytes, on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """A pass that warms up, every pass of every chunk size, and the comparison. A point may be done again."""
        passes = [
            partial(self._pass, chunk, begin, end)
            for chunk in self._chunks
            for begin, end in pairwise(self._ends(chunk))
        ]
        return [passes[0], *passes, self._compare]

    def _ends(self, chunk: int) -> list[int]:
        return [*range(0, self._n, chunk), self._n]

    def _pass(self, chunk: int, begin: int, end: int) -> None:
        model = self._model
        cache = self._caches.setdefault(chunk, model.transformer.new_cache())
        cache.truncate(begin)
        ids = self._ids[begin:end]
        with Stopwatch(model.device) as watch:
            if end < self._n:
                fill(model.transformer, ids, cache)
            else:
                self._logits[chunk] = usable(model, logits_of_newest(model.transformer, ids, cache))
        self._seconds.setdefault(chunk, {})[begin] = watch.seconds

    def _compare(self) -> None:
        self._points = tuple(self._point(chunk) for chunk in self._chunks)

    def _point(self, chunk: int) -> ChunkPoint:
        model, n, cache = self._model, self._n, self._caches[chunk]
        sizes = tuple(end - begin for begin, end in pairwise(self._ends(chunk)))
        seconds = tuple(self._seconds[chunk].values())
        weights, cached = bytes_read(model.transformer, Pass(Phase.PREFILL, cache, sizes, sum(seconds)))
        return ChunkPoint(
            chunk=chunk,
            pass_seconds=seconds,
            weight_bytes_read=weights,
            kv_bytes_read=cached,
            bytes_read_formula=self._read_by_formula(chunk),
            flops=int(prefill_flops(model.shape, n, causal=True, chunk=chunk)),
            flops_multiplied=int(prefill_flops(model.shape, n, chunk=chunk)),
            kv_bytes=cache.used_bytes,
            kv_bytes_formula=int(kv_bytes(model.shape, n_tokens=n, dtypes=model.kv_dtypes)),
            logit_difference=difference(self._logits[self._chunks[-1]], self._logits[chunk]).logit,
            kv_difference=columns_difference(self._caches[self._chunks[-1]], cache),
            token_id=best_going_on(model, self._logits[chunk]),
        )

    def _read_by_formula(self, chunk: int) -> int:
        """Weights and cache of every operator in every pass; the head's weights with the last pass alone."""
        model, read = self._model, 0
        dtypes = WeightDtypes(DTYPES[model.dtype_name])
        for begin, end in pairwise(self._ends(chunk)):
            made = traffic.Pass(end - begin, begin, 1, dtypes, model.kv_dtypes, of_prefix=True)
            operators = traffic.operators(model.shape, made)
            read += sum(one.weights_read + one.kv_read for one in operators if one.group is not None or end == self._n)
        return read
