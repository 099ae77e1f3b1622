"""What a long chain of thought costs by formula: every token one decode step at a context that grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.estimate.accelerators import Accelerator
from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes
from core.estimate.fit import capacity_bytes, max_context
from core.estimate.floors import floor
from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.estimate.weights import weight_bytes, weight_bytes_read

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtCosts:
    """One sequence that decodes tokens at context lengths `n_tokens`, the new one included: [steps] each.

    Attributes:
        kv_bytes: in the cache, and read, at each step; `weight_bytes` are read at each step besides, and lie beside it.
        flops: of each step.
        step_s: the card's least seconds for each step; None for a card whose peak is not known.
        capacity_bytes: what may be filled; `full_at`: the longest context whose cache fits beside the weights, 0 where
            the weights do not, None where the cache stops growing.
    """

    n_prompt: int
    n_tokens: npt.NDArray[np.int64]
    kv_bytes: Array
    weight_bytes: int
    weight_bytes_read: int
    flops: Array
    step_s: Array | None
    capacity_bytes: int
    full_at: int | None

    @property
    def seconds(self) -> float | None:
        """The least seconds of all steps."""
        return None if self.step_s is None else float(self.step_s.sum())

    @property
    def total_flops(self) -> float:
        """FLOP of all steps."""
        return float(self.flops.sum())

    @property
    def bytes_read(self) -> float:
        """Of all steps, weights and cache."""
        return float(self.kv_bytes.sum()) + self.weight_bytes_read * len(self.n_tokens)

    @property
    def fits(self) -> bool:
        """Whether the card holds it to the end."""
        return self.full_at is None or int(self.n_tokens[-1]) <= self.full_at


def thought_costs(
    shape: ModelShape,
    accelerator: Accelerator,
    n_prompt: int,
    n_thought: int,
    *,
    weight_dtypes: WeightDtypes = BF16_WEIGHTS,
    kv_dtypes: KvDtypes = BF16_KV,
    memory_fraction: float = 0.9,
) -> ThoughtCosts:
    """`n_thought` decode steps behind a prompt of `n_prompt` tokens, one sequence on one card.

    Raises:
        ValueError: there is no prompt or no step.
    """
    if n_prompt < 1 or n_thought < 1:
        raise ValueError(f"a prompt and a step are needed, not {n_prompt} and {n_thought}")
    n = np.arange(n_prompt + 1, n_prompt + n_thought + 1)
    kv, flops = kv_bytes(shape, n_tokens=n, dtypes=kv_dtypes), decode_flops(shape, n)
    read, held = weight_bytes_read(shape, weight_dtypes, 1), weight_bytes(shape, weight_dtypes)
    least = floor(accelerator, weight_dtypes.rest, flops, read + kv)
    capacity = capacity_bytes(accelerator, memory_fraction)
    return ThoughtCosts(
        n_prompt=n_prompt,
        n_tokens=n,
        kv_bytes=np.asarray(kv, np.float64),
        weight_bytes=held,
        weight_bytes_read=read,
        flops=np.asarray(flops, np.float64),
        step_s=None if least is None else np.asarray(least.seconds, np.float64),
        capacity_bytes=capacity,
        full_at=max_context(shape, room=capacity - held, batch=1, kv_dtypes=kv_dtypes),
    )
