"""Whether a model fits on a card with its cache, and the most context and the largest batch that do.

By memory alone, in bytes against bytes: weights and KV cache; activations and the runtime's own memory have to find
room in what the memory fraction leaves. With tensor parallelism everything is per rank: weights are shared out evenly,
KV heads are split and, where there are fewer than ranks, copied; a latent cache lies on every rank in full.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from core.estimate.accelerators import Accelerator
from core.estimate.dtypes import KvDtypes, WeightDtypes
from core.estimate.kv import kv_bytes, kv_rates
from core.estimate.shape import ModelShape
from core.estimate.weights import weight_bytes


class Fit(NamedTuple):
    """Bytes on one rank. `max_context` is the longest at the given batch, `max_batch` the largest at the given context;
    0 where not even the weights fit (or not one token, one sequence), None where nothing grows with it."""

    capacity_bytes: int
    needed_bytes: int
    fits: bool
    max_context: int | None
    max_batch: int | None


def capacity_bytes(accelerator: Accelerator, memory_fraction: float) -> int:
    """What may be filled: the fraction as it is written (0.9 is nine tenths), rounded down to whole bytes."""
    return int(accelerator.memory_bytes * Fraction(str(memory_fraction)))


def fit(
    shape: ModelShape,
    *,
    capacity: int,
    n_tokens: int,
    batch: int,
    weight_dtypes: WeightDtypes,
    kv_dtypes: KvDtypes,
    ranks: int = 1,
) -> Fit:
    """What is needed at this context and batch, and the most that fits into `capacity` bytes."""
    own_weights = rank_weight_bytes(shape, weight_dtypes, ranks)
    one_sequence = kv_bytes(shape, n_tokens=n_tokens, dtypes=kv_dtypes, ranks=ranks)
    needed, room = own_weights + batch * one_sequence, capacity - own_weights
    return Fit(
        capacity_bytes=capacity,
        needed_bytes=needed,
        fits=needed <= capacity,
        max_context=max_context(shape, room=room, batch=batch, kv_dtypes=kv_dtypes, ranks=ranks),
        max_batch=max_batch(one_sequence, room),
    )


def rank_weight_bytes(shape: ModelShape, dtypes: WeightDtypes, ranks: int) -> int:
    """M_w on one of `ranks` devices."""
    return -(-weight_bytes(shape, dtypes) // ranks)


def max_batch(one_sequence_bytes: int, room: int) -> int | None:
    """The most sequences whose caches fit into `room` bytes beside the weights."""
    if room < 0:
        return 0
    return room // one_sequence_bytes if one_sequence_bytes else None


def max_context(shape: ModelShape, *, room: int, batch: int, kv_dtypes: KvDtypes, ranks: int = 1) -> int | None:
    """The longest context whose caches fit into `room` bytes beside the weights.

    The cache is a sum of straight lines that stop growing at their windows, so it is walked from bend to bend.
    """
    if room < 0:
        return 0
    budget = room // batch
    growing = sorted(kv_rates(shape, kv_dtypes, ranks), key=lambda rate: rate.window or float("inf"))
    full = 0
    for position, rate in enumerate(growing):
        slope = sum(later.n_bytes for later in growing[position:])
        longest = (budget - full) // slope
        if rate.window is None or longest < rate.window:
            return longest
        full += rate.n_bytes * rate.window
    return None
