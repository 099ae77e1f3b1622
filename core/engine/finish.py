"""What comes after a pass: the token is chosen, the event written, and both are appended to the run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from core.engine.recorder import Recorder
from core.engine.run import Run
from core.engine.trace import Phase, Sampled, StepEvent
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
from core.model.sampling import choose, filter_probabilities
from core.model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Pass:
    """What happened to one run in a step: the phase, the cache it wrote to, new positions by chunk, seconds.

    `batch`: how many runs shared the pass.
    """

    phase: Phase
    cache: KVCache
    chunks: tuple[int, ...]
    seconds: float
    batch: int = 1


def finish(run: Run, done: Pass, logits: Tensor, recorder: Recorder, row: int) -> StepEvent:
    """Samples, writes the event, and appends both to the run."""
    model, cache = run.model, done.cache
    n_tokens, n_new = cache.n_tokens, sum(done.chunks)
    n_past = n_tokens - n_new
    pasts = list(accumulate(done.chunks[:-1], initial=n_past))  # positions before each chunk
    in_layers = sum(layers_flops(model.shape, new, past) for new, past in zip(done.chunks, pasts, strict=True))
    weight_bytes_read, kv_bytes_read = bytes_read(model.transformer, done)
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
        n_passes=len(done.chunks),
        weight_bytes_read=weight_bytes_read,
        kv_bytes_read=kv_bytes_read,
        batch=done.batch,
        seconds=done.seconds,
        sampled=sampled,
        recorded=recorded,
    )
    queries = recorder.queries(row, cache.dtype)
    if queries is not None:
        run.queries.append(queries[-1])
    run.steps.append(event)
    return event


def bytes_read(transformer: Transformer, done: Pass) -> tuple[int, int]:
    """Bytes of weights and of cached keys and values that a step reads at least.

    Every pass reads the layers' matrices once, the step the head's once. A decode step reads the whole cache, the new
    position included; a chunk of a prefix what the chunks before it have written.
    """
    head = transformer.head.n_bytes
    weights = (transformer.product_bytes - head) * len(done.chunks) + head
    n_tokens = done.cache.n_tokens
    n_read = sum(accumulate(done.chunks[:-1], initial=n_tokens - sum(done.chunks)))
    if done.phase is Phase.DECODE:
        n_read = n_tokens
    return weights, done.cache.used_bytes // n_tokens * n_read


def _sample(run: Run, logits: Tensor, n_tokens: int) -> Sampled:
    """Chooses the next token from logits [vocab] and appends it to the run."""
    config, tokenizer = run.config, run.model.tokenizer
    with Stopwatch(run.model.device) as watch:
        seen = set(run.ids) if config.sampling.repetition_penalty != 1 else ()
        if config.record.candidates:
            shown = filter_probabilities(logits, config.sampling, seen, tokenizer.vocab_size)
            token_id = shown.choose(n_tokens)
        else:
            shown, token_id = None, choose(logits, config.sampling, seen, tokenizer.vocab_size, n_tokens=n_tokens)
    return Sampled(
        token_id=token_id,
        label=tokenizer.token_label(token_id),
        text=run.push_token(token_id),
        seconds=watch.seconds,
        candidates=shown.candidates(config.record.candidates) if shown else (),
        kept_count=shown.kept_count if shown else 0,
        kept_mass=shown.kept_mass if shown else 0.0,
        model_total=shown.model_total if shown else 0.0,
        best_score=shown.best_score if shown else 0.0,
        kept_total=shown.kept_total if shown else 0.0,
    )
