"""Prefill, decode, and the loop without a cache: the phases of generation as functions over a list of runs.

Every function advances each run of its list by exactly one step and returns their events in order. Runs of one list
share a model; they share nothing else. A list that holds a run twice, one of another model, or one that has ended is a
ValueError before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from core.engine.recorder import Recorder
from core.engine.run import Run, RunConfig
from core.engine.trace import Phase, Sampled, StepEvent, Trace
from core.estimate.flops import (
    attended_pairs,
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_flops_chapter,
)
from core.estimate.kv import kv_bytes
from core.model.device import Stopwatch
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.model.sampling import choose, filter_probabilities


def prefill(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """Sends each run's whole prompt through the layers, fills its cache, and picks the first token.

    Raises ValueError for a run that has no cache or whose cache is not empty.
    """
    _check(model, runs)
    caches = [_cache_of(run, 0) for run in runs]
    return [_whole_prefix(model, run, cache, Phase.PREFILL) for run, cache in zip(runs, caches, strict=True)]


def recompute_one_token(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """The loop without a cache: the whole prefix through the layers again, for one token each.

    Keys and values of all positions are computed, used in this step, and thrown away.
    """
    _check(model, runs)
    return [_whole_prefix(model, run, model.transformer.new_cache(), Phase.RECOMPUTE) for run in runs]


def decode_one_token(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """Sends each run's newest token, and nothing else, through the layers: one pass for all of them.

    Its keys and values join the cache, its query reads the whole cache and is gone. Raises ValueError for a run that
    has not been prefilled or has produced no token yet.
    """
    if not runs:
        return []
    _check(model, runs)
    caches = [_cache_of(run, len(run.ids) - 1) for run in runs]
    recorder = Recorder([run.config.record for run in runs])
    with _whole_steps(runs), torch.inference_mode():
        with Stopwatch(model.device) as watch:
            newest = torch.tensor([[run.output_ids[-1]] for run in runs], device=model.device.torch_device)  # (B, 1)
            hidden = model.transformer.hidden(newest, caches, recorder if recorder.listens else None)
            logits = model.transformer.logits(hidden[:, -1])  # (B, 1, d) → (B, vocab)
        return [
            _finish(run, Pass(Phase.DECODE, cache, (1,), watch.seconds), logits[row], recorder, row)
            for row, (run, cache) in enumerate(zip(runs, caches, strict=True))
        ]


def step(model: LanguageModel, runs: Sequence[Run]) -> list[StepEvent]:
    """The next step of each run, whichever it is: prefill first, then decode; recompute where there is no cache."""
    _check(model, runs)
    events: dict[int, StepEvent] = {}
    groups: dict[Callable[[LanguageModel, Sequence[Run]], list[StepEvent]], list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(_next_step(run), []).append(index)
    for advance, indices in groups.items():
        events.update(zip(indices, advance(model, [runs[index] for index in indices]), strict=True))
    return [events[index] for index in range(len(runs))]


def generate(model: LanguageModel, run: Run, should_stop: Callable[[], bool] = lambda: False) -> Iterator[StepEvent]:
    """Steps a run until it stops by itself or `should_stop` says so between two steps."""
    while run.stopped is None and not should_stop():
        yield from step(model, [run])


def restore(model: LanguageModel, config: RunConfig, trace: Trace) -> Run:
    """A run as its record left it, though its cache is gone: one prefill over all positions that were in it.

    The pass is no step of the run and leaves no record. The next step gives what it would have given.
    """
    run = Run(model, list(trace.prompt_ids), config, tokenising_seconds=trace.tokenising_seconds)
    for token_id in trace.output_ids:
        run.push_token(token_id)
    run.steps.extend(trace.steps)
    if run.cache is not None and trace.steps:
        n_cached = sum(event.new_positions for event in trace.steps)
        # The newest positions of the steps follow one another, and the last one ends the pass.
        recorder = Recorder([config.record], n_newest=len(trace.steps))
        with torch.inference_mode():
            ids = torch.tensor([run.ids[:n_cached]], device=model.device.torch_device)  # (1, n)
            model.transformer.hidden(ids, [run.cache], recorder if recorder.listens else None)
        queries = recorder.queries(0, run.cache.dtype)
        run.queries = [] if queries is None else list(queries)
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


@contextmanager
def _whole_steps(runs: Sequence[Run]) -> Iterator[None]:
    """A step that fails half-way leaves its run as it was: no positions in the cache and no token without a record."""
    try:
        yield
    except BaseException:
        for run in runs:
            run.settle()
        raise


def _whole_prefix(model: LanguageModel, run: Run, cache: KVCache, phase: Phase) -> StepEvent:
    """All ids of a run through the layers, in one pass or in chunks; only the last position goes through the head.

    Raises Interrupted, the run as it was before, when `run.interrupt` is called meanwhile.
    """
    recorder = Recorder([run.config.record], run.check_interrupt)
    with _whole_steps([run]), torch.inference_mode():
        with Stopwatch(model.device) as watch:
            ids = torch.tensor([run.ids], device=model.device.torch_device)  # (1, n)
            chunks = ids.split(run.config.prefill_chunk or ids.shape[1], dim=1)
            for chunk in chunks:
                hidden = model.transformer.hidden(chunk, [cache], recorder if recorder.listens else None)
            logits = model.transformer.logits(hidden[:, -1])  # (1, d) → (1, vocab)
        sizes = tuple(chunk.shape[1] for chunk in chunks)
        return _finish(run, Pass(phase, cache, sizes, watch.seconds), logits[0], recorder, 0)


@dataclass(frozen=True, slots=True)
class Pass:
    """What happened to one run in a step: the phase, the cache it wrote to, new positions by chunk, seconds."""

    phase: Phase
    cache: KVCache
    chunks: tuple[int, ...]
    seconds: float


def _finish(run: Run, done: Pass, logits: Tensor, recorder: Recorder, row: int) -> StepEvent:
    """Samples, writes the event, and appends both to the run."""
    model, cache = run.model, done.cache
    n_tokens, n_new = cache.n_tokens, sum(done.chunks)
    n_past = n_tokens - n_new
    ends = accumulate(done.chunks, initial=n_past)
    in_layers = sum(layers_flops(model.shape, new, past) for new, past in zip(done.chunks, ends, strict=False))
    chapter = decode_flops_chapter if done.phase is Phase.DECODE else prefill_flops_chapter
    kept_tokens = n_tokens if run.cache is not None else 0
    recorded = recorder.recorded(row, cache, n_new)
    sampled = _sample(run, logits, n_tokens) if len(run.output_ids) < run.config.max_new else None
    event = StepEvent(
        phase=done.phase,
        n_tokens=n_tokens,
        new_positions=n_new,
        reused_positions=n_past,
        attended_pairs=attended_pairs(n_new, n_past),
        flops_exact=in_layers + head_flops(model.shape),
        flops_chapter=chapter(model.shape, n_tokens),
        kv_bytes=cache.used_bytes if kept_tokens else 0,
        kv_bytes_formula=kv_bytes(model.shape, n_tokens=kept_tokens, dtypes=model.kv_dtypes),
        kv_reserved_bytes=cache.reserved_bytes if kept_tokens else 0,
        weight_bytes_read=model.transformer.product_bytes,
        seconds=done.seconds,
        sampled=sampled,
        recorded=recorded,
    )
    queries = recorder.queries(row, cache.dtype)
    if queries is not None:
        run.queries.append(queries[-1])
    run.steps.append(event)
    return event


def _sample(run: Run, logits: Tensor, n_tokens: int) -> Sampled:
    """Chooses the next token from logits [vocab] and appends it to the run."""
    config, tokenizer = run.config, run.model.tokenizer
    with Stopwatch(run.model.device) as watch:
        seen = set(run.ids) if config.sampling.repetition_penalty != 1 else ()
        token_id = choose(logits, config.sampling, seen, tokenizer.vocab_size, n_tokens=n_tokens)
    filtered = None
    if config.record.candidates:
        filtered = filter_probabilities(logits, config.sampling, seen, tokenizer.vocab_size)
    return Sampled(
        token_id=token_id,
        label=tokenizer.token_label(token_id),
        text=run.push_token(token_id),
        seconds=watch.seconds,
        candidates=filtered.candidates(config.record.candidates) if filtered else (),
        kept_count=filtered.kept_count if filtered else 0,
        kept_mass=filtered.kept_mass if filtered else 0.0,
        model_total=filtered.model_total if filtered else 0.0,
        best_score=filtered.best_score if filtered else 0.0,
        kept_total=filtered.kept_total if filtered else 0.0,
    )
