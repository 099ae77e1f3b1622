"""A cache that keeps queries too, and counts who reads them: no later step does.

Queries, keys and values of every position are kept, each in a cache of its own that counts its reads. A step reads its
own queries and all keys and values. To leave no doubt, every step is done three times more with the earlier columns of
one kind set to 0 first: without the earlier queries nothing changes, not in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.lab.lane import best_going_on, through_layers, usable
from core.lab.timeline import most_positions
from core.model.attention import attend_fused
from core.model.load import LanguageModel
from core.refusal import Refusal


class Kind(StrEnum):
    """What a position leaves in a layer."""

    QUERIES = "queries"
    KEYS = "keys"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Kinds:
    """A figure of each kind."""

    queries: float
    keys: float
    values: float


@dataclass(frozen=True, slots=True)
class QueryStep:
    """One step: the prefill (`n_new` the prompt's positions) or a decode step.

    Attributes:
        n_tokens: positions behind it.
        earlier_read: columns (a layer's share of a position) of earlier steps that were read; own_read: of this one.
        change: the largest |difference| of any logit when the earlier columns of a kind are 0; None for the prefill,
            which has none.
        kept_bytes: of all columns behind it.
    """

    n_tokens: int
    n_new: int
    token_id: int
    earlier_read: Kinds
    own_read: Kinds
    change: Kinds | None
    kept_bytes: Kinds


@dataclass(frozen=True, slots=True)
class QueryCacheResult:
    """All steps so far."""

    n_prompt: int
    n_planned: int
    steps: tuple[QueryStep, ...]

    @property
    def earlier_read(self) -> Kinds:
        """Columns of earlier steps that were read, in all steps."""
        return Kinds(*(sum(getattr(step.earlier_read, kind) for step in self.steps) for kind in Kind))

    @property
    def largest_change(self) -> Kinds:
        """The largest change of a logit in any step without the earlier columns of a kind."""
        changes = [step.change for step in self.steps if step.change is not None]
        return Kinds(*(max((getattr(change, kind) for change in changes), default=0.0) for kind in Kind))

    @property
    def wasted_bytes(self) -> int:
        """Of the kept queries."""
        return int(self.steps[-1].kept_bytes.queries) if self.steps else 0

    @property
    def useful_bytes(self) -> int:
        """Of the kept keys and values."""
        return int(self.steps[-1].kept_bytes.keys + self.steps[-1].kept_bytes.values) if self.steps else 0


class _Columns:
    """What one kind left in all layers [L, room, heads, d_h], and how many columns were read of this step and before.

    `erased`: earlier columns are read as 0.
    """

    def __init__(self, model: LanguageModel, heads: int, room: int) -> None:
        config, transformer = model.config, model.transformer
        shape = (config.n_layers, room, heads, config.head_dim)
        self.rows = torch.zeros(shape, dtype=transformer.dtype, device=transformer.device)
        self.n_own = self.n_earlier = 0

    def kept_bytes(self, n_tokens: int) -> int:
        return self.rows[:, :n_tokens].numel() * self.rows.element_size()

    def write(self, layer: int, begin: int, new: Tensor) -> None:
        self.rows[layer, begin : begin + new.shape[0]] = new

    def read(self, layer: int, begin: int, end: int, now: int) -> Tensor:
        """Columns begin … end−1 of a layer [n, heads, d_h]; this step's begin at `now`."""
        earlier = max(0, min(end, now) - begin)
        self.n_earlier += earlier
        self.n_own += end - begin - earlier
        return self.rows[layer, begin:end]


class QueryCache:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any.

    The text goes on greedily, and no end token ends it.
    """

    def __init__(self, model: LanguageModel, prompt_ids: Sequence[int], n_steps: int = 12) -> None:
        """`n_steps` decode steps behind the prefill, which is one pass.

        Raises Refusal for a prompt that cannot be fed, or that is too long for a pass and these steps.
        """
        model.check_prompt(prompt_ids)
        most = min(model.config.context_limit, most_positions(model.device)) - n_steps
        if n_steps < 1 or len(prompt_ids) > most:
            raise Refusal("techniques.query_too_long", n_tokens=len(prompt_ids), most=most)
        self._model, self._n_prompt, self.n_planned = model, len(prompt_ids), n_steps
        self._ids, self._room = list(prompt_ids), len(prompt_ids) + n_steps
        self._columns: dict[Kind, _Columns] = {}
        self._steps: list[QueryStep] = []

    @property
    def result(self) -> QueryCacheResult:
        """What has been measured by now."""
        return QueryCacheResult(self._n_prompt, self.n_planned, tuple(self._steps))

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot; of one kind there is a copy while it is left out."""
        model, config = self._model, self._model.config
        heads = 2 * config.n_heads + 2 * config.n_kv_heads
        n_bytes = config.n_layers * self._room * heads * config.head_dim * model.element_bytes
        return Measurement("query cache", self.points(), n_bytes=n_bytes)

    def points(self) -> list[Callable[[], None]]:
        """The prefill, then a decode step with its three repetitions a point. A point may be done again."""
        return [partial(self._step, step) for step in range(self.n_planned + 1)]

    def _step(self, step: int) -> None:
        model, begin = self._model, self._n_prompt + step - 1 if step else 0
        del self._ids[self._n_prompt + step :], self._steps[step:]
        if step == 0:
            config = model.config
            heads = {Kind.QUERIES: config.n_heads, Kind.KEYS: config.n_kv_heads, Kind.VALUES: config.n_kv_heads}
            self._columns = {kind: _Columns(model, heads[kind], self._room) for kind in Kind}
        columns, n = self._columns, len(self._ids)
        for kept in columns.values():
            kept.n_own = kept.n_earlier = 0
        logits = self._logits(begin)
        token_id = best_going_on(model, logits)
        earlier = Kinds(*(columns[kind].n_earlier for kind in Kind))
        own = Kinds(*(columns[kind].n_own for kind in Kind))
        change = None
        if step:
            change = Kinds(*(float((self._without(kind, begin) - logits).abs().max()) for kind in Kind))
        kept_bytes = Kinds(*(columns[kind].kept_bytes(n) for kind in Kind))
        self._steps.append(QueryStep(n, n - begin, token_id, earlier, own, change, kept_bytes))
        self._ids.append(token_id)

    def _without(self, kind: Kind, begin: int) -> Tensor:
        """The step's logits with the earlier columns of a kind at 0."""
        rows = self._columns[kind].rows
        kept = rows[:, :begin].clone()
        rows[:, :begin] = 0
        try:
            return self._logits(begin)
        finally:
            rows[:, :begin] = kept

    def _logits(self, begin: int) -> Tensor:
        """Logits [usable] behind the newest id; ids from `begin` on go through the layers."""
        transformer = self._model.transformer
        with torch.inference_mode():
            ids = torch.tensor([self._ids[begin:]], device=transformer.device)  # (1, n_new)
            x = through_layers(transformer, transformer.embed(ids), begin, partial(self._attend, begin))
            return usable(self._model, transformer.logits(x[-1]))

    def _attend(self, begin: int, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Writes all three, then reads what attention needs: this step's queries, and all keys and values."""
        columns, n = self._columns, len(self._ids)
        keys, values = keys_values.chunk(2, 1)  # (n_new, n_kv, d_h) each
        for kind, new in zip(Kind, (queries, keys, values), strict=True):
            columns[kind].write(layer, begin, new)
        own = columns[Kind.QUERIES].read(layer, begin, n, begin).to(queries.dtype)
        read = (columns[kind].read(layer, 0, n, begin).to(queries.dtype) for kind in (Kind.KEYS, Kind.VALUES))
        return attend_fused(own, *(rows.transpose(0, 1) for rows in read))  # (n, n_kv, d_h) → (n_kv, n, d_h)
