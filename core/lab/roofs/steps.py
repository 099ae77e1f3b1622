"""A run's measured steps on a machine's roofs: what each computed, read and took, and what it could have taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.estimate.floors import Bound
from core.lab.roofs.record import Roofs

if TYPE_CHECKING:
    from core.engine.trace import StepEvent, Trace


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of a run that had its pass to itself.

    Attributes:
        phase: "prefill", "decode" or "recompute".
        n_tokens: context length, the new positions included.
        flops: FLOP of its matrix products, exact.
        bytes_read: weights and cache that it must read at least.
        seconds: the model's pass on the clock, without sampling.
        intensity: FLOP a byte read.
        flops_per_s: what it reached.
        floor_s: the least time for so much on the roofs; None where none were measured for the dtype.
        share: of the roof above it that it reached, floor_s / seconds; None without a floor.
        bound: which roof that is.
    """

    phase: str
    n_tokens: int
    flops: int
    bytes_read: int
    seconds: float
    intensity: float
    flops_per_s: float
    floor_s: float | None
    share: float | None
    bound: Bound | None = None

    @property
    def bytes_per_s(self) -> float:
        """How fast it read what it must read."""
        return self.bytes_read / self.seconds


def measured_steps(trace: Trace, dtype_name: str, roofs: Roofs | None) -> tuple[MeasuredStep, ...]:
    """The run's steps in order, on roofs where there are some.

    A pass that several runs shared is left out: its seconds belong to all of them, and what the others computed and
    read in it is not in this run's record.
    """
    return tuple(_measured(event, dtype_name, roofs) for event in trace.steps if event.batch == 1)


def _measured(event: StepEvent, dtype_name: str, roofs: Roofs | None) -> MeasuredStep:
    floor = None if roofs is None else roofs.floor(event.flops_exact, event.bytes_read, dtype_name)
    floor_s = None if floor is None else float(floor.seconds)
    return MeasuredStep(
        phase=str(event.phase),
        n_tokens=event.n_tokens,
        flops=event.flops_exact,
        bytes_read=event.bytes_read,
        seconds=event.seconds,
        intensity=event.flops_exact / event.bytes_read,
        flops_per_s=event.flops_exact / event.seconds,
        floor_s=floor_s,
        share=None if floor_s is None else floor_s / event.seconds,
        bound=None if floor is None else floor.bound,
    )


def with_floor(steps: Sequence[MeasuredStep], phase: str) -> list[MeasuredStep]:
    """The steps of a phase that have a roof above them, the smallest share of it first."""
    return sorted((step for step in steps if step.phase == phase and step.share), key=lambda step: step.share or 0.0)


def middle_step(steps: Sequence[MeasuredStep], phase: str) -> MeasuredStep | None:
    """The step of a phase whose share is the median, the upper one of two; None where no step has a roof."""
    ordered = with_floor(steps, phase)
    return ordered[len(ordered) // 2] if ordered else None
