"""What a sweep will take before it begins: memory by formula, time from a short probe of the same model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.engine.prefix import chunk_for
from core.estimate.flops import decode_flops, layers_flops
from core.estimate.kv import kv_bytes
from core.lab.sweep.plan import SweepPlan
from core.model.device import Stopwatch
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel
from core.refusal import Refusal

PROBE_TRIES = 3


@dataclass(frozen=True, slots=True)
class Probe:
    """What a chunk of a prefill and a decode step behind it take on this machine, the faster of a few tries each.

    `flops_per_s` is the chunk's; the step is of one sequence with `n_tokens` positions.
    """

    flops_per_s: float
    decode_step_s: float
    n_tokens: int


def probe(model: LanguageModel) -> Probe:
    """Runs both; a second or less."""
    n_new = min(chunk_for(model.device), model.config.context_limit - 1)
    ids = torch.zeros(1, n_new, dtype=torch.long, device=model.device.torch_device)  # (1, n_new)
    chunk, step = [], []
    with torch.inference_mode():
        for _ in range(PROBE_TRIES):
            cache = model.transformer.new_cache()
            with Stopwatch(model.device) as watch:
                model.transformer.hidden(ids, [cache])
            chunk.append(watch.seconds)
            with Stopwatch(model.device) as watch:
                model.transformer.logits(model.transformer.hidden(ids[:, :1], [cache])[:, -1])  # (1, 1, d) → (1, d)
            step.append(watch.seconds)
    flops = int(layers_flops(model.shape, n_new, 0))
    return Probe(flops / min(chunk), min(step), n_new + 1)


def needed_bytes(model: LanguageModel, plan: SweepPlan) -> int:
    """A bound on what it takes beside the model: the filled caches, the copies that are stepped, one layer of them
    side by side in the activations' dtype, and the logits."""
    n, batch, config = plan.most_context, plan.most_batch, model.config
    filled = int(kv_bytes(model.shape, n_tokens=n, batch=batch, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS))
    width = model.transformer.activation_dtype.itemsize
    side_by_side = 2 * batch * config.n_kv_heads * (n + BLOCK_TOKENS) * config.head_dim * width
    return 2 * filled + side_by_side + 4 * batch * config.vocab_size


def foreseen_seconds(model: LanguageModel, plan: SweepPlan, n_steps: int, probed: Probe, n_done: int = 0) -> float:
    """Seconds of the whole sweep, each spot with `n_steps` steps; `n_done` of its spots are measured already.

    Filling goes at the probe's FLOP a second. A step takes the probed one's time for every byte it reads more, and for
    every further sequence's products the time they would take in a prefill: batches wait longer, but multiply better.
    """
    shape, n_kept, spots = model.shape, plan.most_context - 1, list(plan.spots())
    filling = 0.0
    if plan.fill == "prefill":
        step = chunk_for(model.device)
        parts = (min(step, n_kept - begin) for begin in range(0, n_kept, step))
        chunks = zip(range(0, n_kept, step), parts, strict=True)
        flops = sum(int(layers_flops(shape, n_new, begin)) for begin, n_new in chunks)
        filling = plan.most_batch * flops / probed.flops_per_s

    def read(n_tokens: int, batch: int) -> int:
        caches = int(kv_bytes(shape, n_tokens=n_tokens, batch=batch, dtypes=model.kv_dtypes))
        return model.transformer.product_bytes + caches

    def step_seconds(context: int, batch: int) -> float:
        by_bytes = probed.decode_step_s * read(context, batch) / read(probed.n_tokens, 1)
        return by_bytes + int(decode_flops(shape, context, batch - 1)) / probed.flops_per_s

    stepping = sum(n_steps * step_seconds(spot.context, spot.batch) for spot in spots)
    return filling + stepping * (1 - n_done / len(spots))


def check_room(model: LanguageModel, plan: SweepPlan, budget_bytes: int) -> None:
    """Raises Refusal for a context beyond the model's, and for caches beyond the budget, naming what would fit."""
    limit = model.config.context_limit
    if plan.most_context > limit:
        raise Refusal("sweep.context_too_long", context=plan.most_context, model=model.name, limit=limit)
    needed = needed_bytes(model, plan)
    if needed > budget_bytes:
        raise Refusal(
            "sweep.too_large",
            context=plan.most_context,
            batch=plan.most_batch,
            needed=needed / 2**20,
            budget=budget_bytes / 2**20,
        )


def check_time(seconds: float, most_seconds: float) -> None:
    """Raises Refusal for a sweep that would take too long."""
    if seconds > most_seconds:
        raise Refusal("sweep.too_long", minutes=seconds / 60, most=most_seconds / 60)
