"""Runs for tests of the engine: made, stepped, looked into and compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.engine.trace import StepEvent
from core.model.config import ModelConfig
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig

# A shape small enough to reckon with by hand.
MADE_UP = ModelConfig(
    name="made up",
    architecture="llama",
    n_layers=3,
    d_model=8,
    n_heads=4,
    n_kv_heads=2,
    head_dim=6,
    d_ff=8,
    vocab_size=16,
    context_limit=1024,
)
# Wide enough that the texts of a random model differ.
SAMPLED = SamplingConfig(temperature=1.5, top_k=200, top_p=0.98, seed=11)


def new_run(model: LanguageModel, ids: list[int], **settings: Any) -> Run:
    return Run(model, ids, RunConfig(**{"max_new": 100, **settings}))


def advance(model: LanguageModel, runs: list[Run], n_steps: int) -> None:
    for _ in range(n_steps):
        step(model, runs)


def contents(run: Run) -> tuple[Tensor, ...]:
    """All keys and values the run's cache holds, copied."""
    assert run.cache is not None
    layers = range(run.model.config.n_layers)
    return tuple(part(layer).clone() for part in (run.cache.keys, run.cache.values) for layer in layers)


def next_logits(run: Run) -> Tensor:
    """Logits [vocab] behind the run's newest token, by a pass over a copy of its cache."""
    assert run.cache is not None
    model, copy = run.model, run.model.transformer.new_cache()
    copy.reserve(run.cache.n_tokens)
    for layer in range(model.config.n_layers):
        copy.write(layer, torch.cat([run.cache.keys(layer), run.cache.values(layer)]).transpose(0, 1))
    copy.commit(run.cache.n_tokens)
    with torch.inference_mode():
        hidden = model.transformer.hidden(torch.tensor([run.ids[run.cache.n_tokens :]]), [copy])
        return model.transformer.logits(hidden[0, -1])


def assert_same_contents(one: tuple[Tensor, ...], other: tuple[Tensor, ...], tolerance: float = 0) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def facts(event: StepEvent) -> dict[str, Any]:
    """An event without what the clock read."""
    names = ("phase", "n_tokens", "new_positions", "reused_positions", "attended_pairs", "flops_exact", "flops_chapter")
    sampled = event.sampled and (event.sampled.token_id, event.sampled.label, event.sampled.text)
    return {**{name: getattr(event, name) for name in (*names, "kv_bytes", "kv_reserved_bytes")}, "token": sampled}
