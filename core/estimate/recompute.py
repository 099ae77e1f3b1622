"""What one more token costs with the KV cache and without it, for any model on any card, by formula."""

from __future__ import annotations

from typing import NamedTuple

from core.estimate.accelerators import Accelerator
from core.estimate.estimate import Request, estimate
from core.estimate.floors import Floor
from core.estimate.shape import ModelShape


class RecomputeGap(NamedTuple):
    """One token of one sequence at a context length: a decode step against a pass over the whole prefix.

    Floors are those of the card; None where its peak is not known.
    """

    n_tokens: int
    decode_flops: int
    recompute_flops: int
    decode_floor: Floor | None
    recompute_floor: Floor | None

    @property
    def flops_ratio(self) -> float:
        """How many times the FLOP of a decode step recomputing takes."""
        return self.recompute_flops / self.decode_flops

    @property
    def seconds_ratio(self) -> float | None:
        """How many times the least time of a decode step recomputing takes."""
        if self.decode_floor is None or self.recompute_floor is None:
            return None
        return float(self.recompute_floor.seconds / self.decode_floor.seconds)


def recompute_gap(shape: ModelShape, n_tokens: int, accelerator: Accelerator | None = None) -> RecomputeGap:
    """The gap at `n_tokens`, weights and cache in bf16. Recomputing is a prefill of all n, whose floor is causal."""
    made = estimate(shape, Request(context=n_tokens, accelerator=accelerator))
    return RecomputeGap(
        n_tokens, made.decode.flops_exact, made.prefill.flops_exact, made.decode.floor, made.prefill.floor
    )
