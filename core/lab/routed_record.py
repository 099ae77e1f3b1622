"""The record of a layer with experts at work: how many were met, what was read, what it took, router by router."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from core.estimate.distinct_experts import Interval, distinct_experts_interval, distinct_experts_of_shares
from core.estimate.shape import Experts

EXPERTS = Experts(n_experts=32, n_active=2, d_expert=128)
"""Small enough to be trained here in seconds; E/k = 16 as in Qwen3-30B-A3B."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
N_STATES, N_BATCHES = 2048, 40
RouterName = Literal["uniform", "random", "balanced", "unbalanced", "all"]
ROUTERS: tuple[RouterName, ...] = ("uniform", "random", "balanced", "unbalanced")
"""Forced uniform choices; random weights on Gaussian inputs; trained with the balancing loss, and without it. To "all"
(`core.lab.few_experts`) every token goes through every expert: a dense layer."""


def expert_bytes(experts: Experts, d_model: int) -> int:
    """Gate, up and down of one expert in fp32."""
    return 3 * experts.d_expert * d_model * 4


def routed_layer(n_layers: int) -> int:
    """Which layer's feed-forward part is imitated: the middle one."""
    return n_layers // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPoint:
    """One router at one batch; the tuples hold a number for each batch that was run.

    Attributes:
        distinct: how many different experts were multiplied with.
        bytes_read: of their weights.
        seconds: of the layer, without the router.
    """

    router: RouterName
    batch: int
    distinct: tuple[int, ...]
    bytes_read: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def mean_distinct(self) -> float:
        """Experts a batch met on average."""
        return fmean(self.distinct)

    @property
    def mean_bytes(self) -> float:
        """Bytes a batch read on average."""
        return fmean(self.bytes_read)

    @property
    def median_seconds(self) -> float:
        """The middle of all runs, which one that was disturbed does not move."""
        return median(self.seconds)


class RoutedPoints:
    """What is asked of points that are measured one after another."""

    __slots__ = ()
    points: tuple[RoutedPoint, ...]
    n_planned: int

    @property
    def has_ended(self) -> bool:
        """Whether every point was measured."""
        return len(self.points) == self.n_planned

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes, rising."""
        return tuple(sorted({point.batch for point in self.points}))

    def at(self, router: RouterName, batch: int) -> RoutedPoint:
        """One point. Raises StopIteration where there is none."""
        return next(point for point in self.points if (point.router, point.batch) == (router, batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedResult(RoutedPoints):
    """All of it, as far as it was measured.

    Attributes:
        model, layer: whose hidden states were routed, and before which layer's feed-forward part they were taken.
        expert_bytes: of one expert's matrices.
        shares: of each router, how large a part of all its tokens chose each expert; they add up to k.
        errors: of each trained router, the mean squared error of its layer at the first steps and at the last; an
            output of nothing but zeros has 1.
        n_disturbed: points that stayed disturbed by other programs.
    """

    model: str
    layer: int
    n_states: int
    experts: Experts
    expert_bytes: int
    points: tuple[RoutedPoint, ...]
    shares: dict[RouterName, tuple[float, ...]]
    errors: dict[RouterName, tuple[float, float]]
    n_planned: int
    n_disturbed: int = 0

    def of(self, router: RouterName) -> list[RoutedPoint]:
        """A router's points, the batch rising."""
        return sorted((point for point in self.points if point.router == router), key=lambda point: point.batch)

    def interval(self, batch: int, level: float = 0.99) -> Interval:
        """Where the uniform router's mean lies with probability `level`."""
        return distinct_experts_interval(self.experts, batch, len(self.at("uniform", batch).distinct), level)

    def expected(self, router: RouterName, batch: int) -> float:
        """What a router's own shares let one expect of tokens that are drawn alone."""
        return distinct_experts_of_shares(self.shares[router], batch)

    @property
    def same_work(self) -> tuple[RoutedPoint, RoutedPoint]:
        """The uniform and the unbalanced router at the batch where the bytes they read differ most: both multiply the
        same number of rows, and what differs is what has to be read."""

        def apart(batch: int) -> float:
            return self.at("uniform", batch).mean_bytes - self.at("unbalanced", batch).mean_bytes

        most = max(self.batches, key=apart)
        return self.at("uniform", most), self.at("unbalanced", most)
