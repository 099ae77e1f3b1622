"""The least time a pass can take on a card: all its FLOP at the dense peak, or all its bytes at full bandwidth.

A floor, not a forecast: published batch-1 decoding on one card takes 1.15 to 5 times as long.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from core.estimate.accelerators import Accelerator, peak_flops
from core.estimate.dtypes import Dtype
from core.estimate.elementwise import Numbers, larger

Bound = Literal["compute", "memory"]


class Floor(NamedTuple):
    """Seconds of computing alone, of moving bytes alone, and the longer of the two."""

    compute_s: Numbers
    memory_s: Numbers

    @property
    def seconds(self) -> Numbers:
        """The floor."""
        return larger(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Bound:
        """Which of the two it is."""
        return "compute" if self.compute_s > self.memory_s else "memory"


def floor(
    accelerator: Accelerator, weight_dtype: Dtype, flops: Numbers, bytes_moved: Numbers, ranks: int = 1
) -> Floor | None:
    """The floor of a pass; None for a card whose peak is not known.

    Args:
        weight_dtype: what the weights are stored in decides which peak counts.
        flops: FLOP of the pass, shared out evenly over the ranks.
        bytes_moved: bytes that the fullest rank moves.
    """
    peak = peak_flops(accelerator, weight_dtype)
    if peak is None:
        return None
    return Floor(flops / (peak * ranks), bytes_moved / accelerator.bandwidth_bytes_per_s)


def critical_batch(accelerator: Accelerator, weight_dtype: Dtype) -> float | None:
    """The batch from which a product with weights is bound by compute: 2·B FLOP a weight against its bytes.

    Attention is not part of it: every sequence brings its own cache, so batching does not help there.
    """
    peak = peak_flops(accelerator, weight_dtype)
    if peak is None:
        return None
    return peak / accelerator.bandwidth_bytes_per_s * weight_dtype.bytes_per_number / 2
