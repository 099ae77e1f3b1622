"""Counts a model's matrix products with torch's own counter, and sets them beside the exact estimate.

The model is built from `core.model.skeleton` on the meta device: no weights, no memory, any size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.shape import Attention, Experts, FeedForward, LatentAttention, ModelShape
from core.estimate.weights import parameters
from core.model.skeleton import Meter, OnLayer, Part, Skeleton
from core.refusal import Refusal

# torch keeps a tensor's size in bytes in 63 bits; a number of the skeleton has two bytes.
MOST_NUMBERS = 2**62 - 1


@dataclass(frozen=True, slots=True)
class CountedPhase:
    """One phase, in FLOP for the whole batch.

    Attributes:
        flops_counted: what torch's counter saw.
        parts: the same by part of the model, those that multiply nothing left out.
        flops_exact: what the estimate says.
        seconds: what the counting took.
    """

    flops_counted: int
    parts: tuple[tuple[Part, int], ...]
    flops_exact: int
    seconds: float

    @property
    def gap(self) -> float:
        """How far the estimate lies above the count, as a share of the count: 0 where they are equal."""
        return (self.flops_exact - self.flops_counted) / self.flops_counted


@dataclass(frozen=True, slots=True)
class Counted:
    """Both phases of a model at a context and a batch."""

    model: str
    n_tokens: int
    batch: int
    prefill: CountedPhase
    decode: CountedPhase


def count(shape: ModelShape, *, n_tokens: int, batch: int = 1, on_layer: OnLayer | None = None) -> Counted:
    """Runs prefill over `n_tokens` positions and decode of the `n_tokens`-th, both for `batch` sequences.

    `on_layer(done, total)` is called after each layer; both phases together are the total.

    Raises:
        Refusal: a tensor would have more numbers than torch can address.
    """
    if largest_tensor(shape, n_tokens, batch) > MOST_NUMBERS:
        raise Refusal("estimate.count_too_large", model=shape.name, n_tokens=n_tokens, batch=batch)
    skeleton, total = Skeleton(shape), 2 * shape.n_layers

    def after(layers_before: int) -> OnLayer | None:
        return None if on_layer is None else lambda done, _: on_layer(layers_before + done, total)

    return Counted(
        model=shape.name,
        n_tokens=n_tokens,
        batch=batch,
        prefill=_counted(
            lambda meter: skeleton.prefill(n_tokens, batch, meter, after(0)),
            prefill_flops(shape, n_tokens, batch),
        ),
        decode=_counted(
            lambda meter: skeleton.decode(n_tokens, batch, meter, after(shape.n_layers)),
            decode_flops(shape, n_tokens, batch),
        ),
    )


def _counted(run: Callable[[Meter], object], flops_exact: int) -> CountedPhase:
    """One pass under the counter. Its products outside all parts, were there any, would be in the total alone."""
    parts: dict[Part, int] = {}
    started = time.perf_counter()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:

        @contextmanager
        def meter(part: Part) -> Iterator[None]:
            before = counter.get_total_flops()
            yield
            parts[part] = parts.get(part, 0) + counter.get_total_flops() - before

        run(meter)
    return CountedPhase(
        flops_counted=counter.get_total_flops(),
        parts=tuple(parts.items()),
        flops_exact=flops_exact,
        seconds=time.perf_counter() - started,
    )


def largest_tensor(shape: ModelShape, n_tokens: int, batch: int) -> int:
    """A bound on how many numbers the largest tensor of the two passes holds."""
    rows, numbers = batch * n_tokens, [parameters(shape).total, batch * shape.vocab_size]
    widths = [shape.d_model]
    for group in shape.groups:
        match group.attention:
            case Attention() as part:
                widths.append(part.n_heads * max(n_tokens, part.head_dim, part.value_dim))
            case LatentAttention() as part:
                per_head = max(n_tokens, part.nope_dim + part.rope_dim, part.kv_rank + part.rope_dim, part.value_dim)
                widths += (part.query_rank or 0, part.n_heads * per_head)
        match group.feed_forward:
            case FeedForward() as dense:
                widths.append(dense.d_ff)
            case Experts() as experts:  # every row takes its experts' matrices along
                widths += (experts.n_experts, experts.d_shared, experts.n_active * experts.d_expert * shape.d_model)
    return max(*numbers, rows * max(widths))
