"""The two roofs that every pass stays below, and the least time of a pass under them: as a whole, and by operators.

All times are floors, not forecasts. As a whole, a pass may compute and move bytes at the same time throughout; operator
by operator, each has its own bound and they come one after another, which is never less. Activations are in no floor:
a fused kernel need not move them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from core.estimate.accelerators import Accelerator, peak_flops
from core.estimate.dtypes import Dtype
from core.estimate.estimate import Request
from core.estimate.floors import Bound
from core.estimate.shape import ModelShape
from core.estimate.traffic import Operator, Pass, operators


class Roof(NamedTuple):
    """What a device can do at most: FLOP a second, and bytes a second from its memory; published or measured."""

    peak_flops: float
    bandwidth_bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP a byte from which on computing takes longer than reading (Williams et al., the roofline model)."""
        return self.peak_flops / self.bandwidth_bytes_per_s

    def reachable(self, intensity: float) -> float:
        """FLOP a second at so many FLOP a byte."""
        return min(self.peak_flops, intensity * self.bandwidth_bytes_per_s)


def roof_of(accelerator: Accelerator, weight_dtype: Dtype, ranks: int = 1) -> Roof | None:
    """The published roof of a card, or of `ranks` of them with everything shared out evenly; None without a peak."""
    peak = peak_flops(accelerator, weight_dtype)
    return None if peak is None else Roof(peak * ranks, float(accelerator.bandwidth_bytes_per_s) * ranks)


class Split(NamedTuple):
    """Seconds that each part of a pass takes at full speed. Computing goes on while bytes move.

    `activations_s` is what goes between the operators if nothing is fused: an upper bound, and no part of a floor.
    """

    weights_s: float
    kv_s: float
    compute_s: float
    activations_s: float

    @property
    def memory_s(self) -> float:
        """Of weights and cache, which have to be moved."""
        return self.weights_s + self.kv_s

    @property
    def floor_s(self) -> float:
        """The longer of moving and computing."""
        return max(self.memory_s, self.compute_s)

    @property
    def bound(self) -> Bound:
        """Which of the two it is."""
        return "compute" if self.compute_s > self.memory_s else "memory"


class Group(NamedTuple):
    """Operators of a kind as one point of a roofline: FLOP, and bytes of weights and cache."""

    name: str
    flops: int
    bytes_moved: int

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flops / self.bytes_moved


# An operator of attention, or of the output head; everything else multiplies with the weights of a layer.
_GROUPS = {"scores": "attention", "gathering": "attention", "head": "head"}


class Placed(NamedTuple):
    """A pass under a roof: its parts, its operators, and the least time of both readings."""

    flops: int
    bytes_moved: int
    split: Split
    operators_s: float
    groups: tuple[Group, ...]

    @property
    def intensity(self) -> float:
        """FLOP a byte of weights and cache."""
        return self.flops / self.bytes_moved

    @property
    def flops_per_s(self) -> float:
        """What the operators reach one after another; the roof itself where all have the same bound."""
        return self.flops / self.operators_s


def decode_pass(request: Request, *, n_tokens: int | None = None, batch: int | None = None) -> Pass:
    """The decode step of a request, or of another context or batch: its token is the n-th."""
    n = request.context if n_tokens is None else n_tokens
    return Pass(1, n - 1, request.batch if batch is None else batch, request.weight_dtypes, request.kv_dtypes)


def prefill_pass(request: Request, *, n_tokens: int | None = None) -> Pass:
    """The prefill of a request, or of another length; of attention, the pairs that the mask leaves."""
    n = request.context if n_tokens is None else n_tokens
    return Pass(n, 0, request.batch, request.weight_dtypes, request.kv_dtypes, of_prefix=True, masked_pairs_count=False)


@lru_cache(maxsize=2048)
def placed(shape: ModelShape, made: Pass, roof: Roof) -> Placed:
    """A pass under a roof. Kept: a dial that is dragged asks for the same trails again and again."""
    listed = operators(shape, made)
    flops, weights = sum(one.flops for one in listed), sum(one.weights_read for one in listed)
    kv = sum(_kv(one, made) for one in listed)
    activations = sum(one.activations_read + one.activations_written for one in listed)
    bandwidth = roof.bandwidth_bytes_per_s
    groups: dict[str, list[Operator]] = {}
    for one in listed:
        groups.setdefault(_GROUPS.get(one.name, "projection"), []).append(one)
    return Placed(
        flops=flops,
        bytes_moved=weights + kv,
        split=Split(weights / bandwidth, kv / bandwidth, flops / roof.peak_flops, activations / bandwidth),
        operators_s=sum(operator_floor(one, made, roof) for one in listed),
        groups=tuple(
            Group(name, sum(one.flops for one in members), sum(one.weights_read + _kv(one, made) for one in members))
            for name, members in groups.items()
            if any(one.weights_read + _kv(one, made) for one in members)
        ),
    )


def operator_floor(one: Operator, made: Pass, roof: Roof) -> float:
    """Seconds: the longer of its own computing and its own weights and cache."""
    return max(one.flops / roof.peak_flops, (one.weights_read + _kv(one, made)) / roof.bandwidth_bytes_per_s)


def _kv(one: Operator, made: Pass) -> int:
    """Cache that an operator moves. A decode step's new row is written and is among those that are read: once."""
    return one.kv_read if made.is_decode else one.kv_read + one.kv_written
