"""Prefill, decode, and the loop without a cache: the phases of generation as functions over a list of runs.

Every function advances each run of its list by exactly one step and returns their events in order. Runs of one list
share a model; they share nothing else. A list that holds a run twice, one of another model, or one that has ended is a
ValueError before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import torch
from torch import Tensor

from core.engine.finish import Pass, finish
from core.engine.prefix import PrefixPass
from core.engine.recorder import Recorder
from core.engine.run import Run, RunConfig
from core.engine.shares import in_shares, shares, shares_of_a_pass
from core.engine.trace import Phase, StepEvent, Trace
from core.model.device import Stopwatch
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel


def prefill(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """Sends each run's whole prompt through the layers, fills its cache, and picks the first token.

    Raises ValueError for a run that has no cache or whose cache is not empty.
    """
    _check(model, runs)
    for run in runs:
        _cache_of(run, 0)
    return [_whole_prefix(run) for run in runs]


def recompute_one_token(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """The loop without a cache: the whole prefix through the layers again, for one token each.

    Keys and values of all positions are computed, used in this step, and thrown away.
    """
    _check(model, runs)
    return [_whole_prefix(run) for run in runs]


def decode_one_token(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """Sends each run's newest token, and nothing else, through the layers: one pass for all of them.

    Its keys and values join the cache, its query reads the whole cache and is gone. Raises ValueError for a run that
    has not been prefilled or has produced no token yet.
    """
    if not runs:
        return []
    _check(model, runs)
    for run in runs:
        _cache_of(run, len(run.ids) - 1)
    with ExitStack() as whole_steps:
        for run in runs:
            whole_steps.enter_context(run.whole_steps())
        passed_through = shares_of_a_pass(runs, model.device, model.transformer.dtype)
        with Stopwatch(model.device) as watch:
            passed = in_shares(lambda share: _newest_through(model, share), passed_through)
        rows = [
            (run, Pass(Phase.DECODE, cache, (1,), watch.seconds, len(runs)), logits[row], recorder, row)
            for share, (logits, recorder) in zip(passed_through, passed, strict=True)
            for row, run in enumerate(share)
            if (cache := run.cache) is not None
        ]
        shared_out = shares(rows, model.device)
        finished = in_shares(lambda share: [(id(row[0]), finish(*row)) for row in share], shared_out)
    events = dict(chain(*finished))
    return [events[id(run)] for run in runs]


def step(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """The next step of each run, whichever it is: prefill first, then decode; recompute where there is no cache.

    A run whose cache was dropped is refilled first.
    """
    _check(model, runs)
    events: dict[int, StepEvent] = {}
    groups: dict[Callable[[LanguageModel, Sequence[Run]], list[StepEvent]], list[int]] = {}
    for index, run in enumerate(runs):
        refill(run)
        groups.setdefault(_next_step(run), []).append(index)
    for advance, indices in groups.items():
        events.update(zip(indices, advance(model, [runs[index] for index in indices]), strict=True))
    return [events[index] for index in range(len(runs))]


def generate(model: LanguageModel, run: Run, should_stop: Callable[[], bool] = lambda: False) -> Iterator[StepEvent]:
    """Steps a run until it stops by itself or `should_stop` says so between two steps."""
    while run.stopped is None and not should_stop():
        yield from step(model, [run])


def refill(run: Run) -> None:
    """Gives a run the cache back that was dropped: one prefill over all positions that were in it.

    The pass is no step of the run and leaves no record. The next step gives what it would have given.
    """
    if not run.is_resident:
        PrefixPass(run).whole()


def restore(model: LanguageModel, config: RunConfig, trace: Trace) -> Run:
    """A run as its record left it, without its cache: `step` refills it first."""
    run = Run(model, list(trace.prompt_ids), config, tokenising_seconds=trace.tokenising_seconds)
    for token_id in trace.output_ids:
        run.push_token(token_id)
    run.steps.extend(trace.steps)
    return run


def _check(model: LanguageModel, runs: Sequence[Run]) -> None:
    """Raises ValueError, before anything runs, for a list that cannot be stepped together."""
    if len({id(run) for run in runs}) < len(runs):
        raise ValueError("a run stands in the list twice: both would write the same place of its cache")
    for run in runs:
        if run.model is not model:
            raise ValueError("a run of another model stands in the list")
        if run.stopped is not None:
            raise ValueError(f"a run in the list has ended: {run.stopped}")


def _next_step(run: Run) -> Callable[[LanguageModel, Sequence[Run]], list[StepEvent]]:
    if run.cache is None:
        return recompute_one_token
    return decode_one_token if run.cache.n_tokens else prefill


def _cache_of(run: Run, n_tokens: int) -> KVCache:
    if run.cache is None or run.cache.n_tokens != n_tokens or n_tokens >= len(run.ids):
        raise ValueError(f"this step needs a cache of {n_tokens} positions and a token behind them")
    return run.cache


def _whole_prefix(run: Run) -> StepEvent:
    event = PrefixPass(run).whole()
    assert event is not None
    return event


def _newest_through(model: LanguageModel, runs: Sequence[Run]) -> tuple[Tensor, Recorder]:
    """The newest token of each run through layers and head: logits [B, vocab], and what was heard on the way."""
    recorder = Recorder([run.config.record for run in runs])
    newest = torch.tensor([[run.output_ids[-1]] for run in runs], device=model.device.torch_device)  # (B, 1)
    caches = [run.cache for run in runs if run.cache is not None]
    hidden = model.transformer.hidden(newest, caches, recorder if recorder.listens else None)
    return model.transformer.logits(hidden[:, -1]), recorder  # (B, 1, d) → (B, vocab)
