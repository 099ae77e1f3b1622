"""What a sweep of a server is to measure, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes
from core.estimate.shape import ModelShape
from core.lab.remote.limits import (
    DEFAULT_NEW_TOKENS,
    LEAST_NEW_TOKENS,
    MOST_CONCURRENT,
    MOST_CONTEXT,
    MOST_NEW_TOKENS,
    MOST_REPEATS,
    MOST_TOKENS_AT_ONCE,
    Limits,
)
from core.lab.remote.prompts import MOST_PROBES
from core.refusal import Refusal


class PointKey(NamedTuple):
    """Which point: context in tokens, requests at once, and which repetition, from 0."""

    context: int
    batch: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlan:
    """A sweep: every context × batch, `repeats` times.

    Attributes:
        new_tokens: tokens of each answer. The prompt is half as many short of the context, so that the steps that are
            timed lie evenly about it: behind P tokens the N − 1 steps see P + 1 to P + N − 1 positions, P + N/2 on
            average.
        shape: the model, where the catalogue has it: for the columns of the formulas.
    """

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int = 1
    new_tokens: int = DEFAULT_NEW_TOKENS
    shape: ModelShape | None = None
    weight_dtypes: WeightDtypes = BF16_WEIGHTS
    kv_dtypes: KvDtypes = BF16_KV

    def prompt_tokens(self, context: int) -> int:
        """The length of the prompts for a context."""
        return context - self.new_tokens // 2

    def points(self) -> Iterator[PointKey]:
        """In the order they are measured: every second repetition backwards, so that a drift meets all alike."""
        cells = [(context, batch) for context in self.contexts for batch in self.batches]
        for repeat in range(self.repeats):
            for context, batch in cells if repeat % 2 == 0 else reversed(cells):
                yield PointKey(context, batch, repeat)

    @property
    def n_points(self) -> int:
        """How many points."""
        return len(self.contexts) * len(self.batches) * self.repeats

    @property
    def n_requests(self) -> int:
        """Streams of all points, if none has to be repeated."""
        return len(self.contexts) * sum(self.batches) * self.repeats

    @property
    def most_probes(self) -> int:
        """Requests of one token that find the lengths of the prompts, at most."""
        return MOST_PROBES * len(self.contexts)

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and answers, if none has to be repeated."""
        of_each = sum(self.prompt_tokens(context) + self.new_tokens for context in self.contexts)
        return of_each * sum(self.batches) * self.repeats


def check_plan(plan: RemotePlan, limits: Limits) -> None:
    """Raises Refusal for a plan that goes beyond a limit; the sentence names it."""
    _within("new_tokens", plan.new_tokens, LEAST_NEW_TOKENS, MOST_NEW_TOKENS)
    _within("repeats", plan.repeats, 1, MOST_REPEATS)
    for batch in plan.batches:
        _within("batch", batch, 1, MOST_CONCURRENT)
    for context in plan.contexts:
        _within("context", context, plan.new_tokens // 2 + 1, MOST_CONTEXT)
    if not plan.n_points:
        raise Refusal("endpoint.nothing_planned")
    _within("context × batch", max(plan.contexts) * max(plan.batches), 1, MOST_TOKENS_AT_ONCE)
    n_requests = plan.n_requests + plan.most_probes
    if n_requests > limits.requests:
        raise Refusal("endpoint.too_many_requests", n=f"{n_requests:,}", most=f"{limits.requests:,}")


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Refusal("endpoint.outside", name=name, value=value, least=least, most=most)
