"""The steps of a saved run, each checked against the one before it and against the model's shape."""

from __future__ import annotations

from core.engine.run import RunConfig
from core.engine.saved.fields import Entry
from core.engine.saved.record import RecordedModel
from core.engine.trace import Phase, Recorded, Sampled, StepEvent
from core.model.sampling import Candidate

MOST_STEPS, MOST_CANDIDATES, LONGEST_PIECE = 4096, 64, 100_000
MOST_RESERVED_AHEAD = 1 << 16
"""Positions a cache may have in reserve: a page of a picture, and far more than a block."""


def read_steps(top: Entry, model: RecordedModel, config: RunConfig, n_prompt: int) -> tuple[StepEvent, ...]:
    """At least one step; what was recorded of each is still missing."""
    entries = top.entries("steps", at_most=MOST_STEPS)
    if not entries:
        raise top.wrong("steps")
    steps = tuple(_step(entry, model) for entry in entries)
    for number, (step, entry) in enumerate(zip(steps, entries, strict=True)):
        first = Phase.PREFILL if config.use_cache else Phase.RECOMPUTE
        later = Phase.DECODE if config.use_cache else Phase.RECOMPUTE
        if step.phase is not (later if number else first):
            raise entry.wrong("phase")
        if step.n_tokens != n_prompt + number:
            raise entry.wrong("n_tokens")
        new = 1 if step.phase is Phase.DECODE else step.n_tokens
        if (step.new_positions, step.reused_positions) != (new, step.n_tokens - new):
            raise entry.wrong("new_positions")
        if step.sampled is None and number < len(steps) - 1:
            raise entry.wrong("sampled")
        _check_bytes(step, entry, model, config)
    return steps


def _check_bytes(step: StepEvent, entry: Entry, model: RecordedModel, config: RunConfig) -> None:
    """The picture reckons with these: the cache's bytes are whole positions of this shape, or none without a cache."""
    sizes = model.config
    position = 2 * sizes.n_layers * sizes.n_kv_heads * sizes.head_dim * model.element_bytes
    kept = step.n_tokens * position if config.use_cache else 0
    if (step.kv_bytes, step.kv_bytes_formula) != (kept, kept):
        raise entry.wrong("kv_bytes")
    ahead, is_torn = divmod(step.kv_reserved_bytes - kept, position)
    if is_torn or not 0 <= ahead <= (MOST_RESERVED_AHEAD if config.use_cache else 0):
        raise entry.wrong("kv_reserved_bytes")


def _step(entry: Entry, model: RecordedModel) -> StepEvent:
    phase = entry.text("phase", longest=20)
    if phase not in set(Phase):
        raise entry.wrong("phase")
    counts = ("n_tokens", "new_positions", "n_passes", "batch", "flops_exact", "flops_chapter", "attended_pairs")
    sizes = ("reused_positions", "kv_bytes", "kv_bytes_formula", "kv_reserved_bytes")
    read = ("weight_bytes_read", "kv_bytes_read")
    return StepEvent(
        phase=Phase(phase),
        **{name: entry.whole(name, least=1) for name in counts},
        **{name: entry.whole(name) for name in (*sizes, *read)},
        seconds=entry.number("seconds"),
        sampled=None if entry.is_null("sampled") else _sampled(entry.entry("sampled"), model),
        recorded=Recorded(),
    )


def _sampled(entry: Entry, model: RecordedModel) -> Sampled:
    token_id = entry.whole("token_id")
    return Sampled(
        token_id=token_id,
        label=_label(model, token_id, entry, "token_id"),
        text=entry.text("text", longest=LONGEST_PIECE),
        seconds=entry.number("seconds"),
        candidates=tuple(_candidate(each, model) for each in entry.entries("candidates", at_most=MOST_CANDIDATES)),
        kept_count=entry.whole("kept_count"),
        kept_mass=entry.number("kept_mass", most=1 + 1e-6),
        model_total=entry.number("model_total"),
        best_score=entry.number("best_score", least=-1e15),
        kept_total=entry.number("kept_total"),
    )


def _candidate(entry: Entry, model: RecordedModel) -> Candidate:
    token_id = entry.whole("id")
    _label(model, token_id, entry, "id")
    return Candidate(
        token_id=token_id,
        probability=entry.number("probability", most=1 + 1e-6),
        kept=entry.flag("kept"),
        probability_kept=entry.number("probability_kept", most=1 + 1e-6),
        logit=entry.score("logit"),
        score=entry.score("score"),
    )


def _label(model: RecordedModel, token_id: int, entry: Entry, name: str) -> str:
    try:
        return model.tokenizer.token_label(token_id)
    except KeyError:
        raise entry.wrong(name) from None
