"""The record of a request's memory: one moment at the end of every part of every step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.engine.trace import Phase


class Part(StrEnum):
    """Which part of a step a moment ends. `REST` is a layer's output product and feed-forward part, and the next
    layer's queries, keys and values, which nothing separates for the eye."""

    CACHE = "cache"  # the cache grows
    EMBEDDING = "embedding"  # up to the first layer's queries, keys and values
    ATTENTION = "attention"
    REST = "rest"
    HEAD = "head"
    FREED = "freed"  # the step's activations are gone
    END = "end"  # the cache is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """What is written out in full."""

    score_table: bool = False
    all_logits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The end of one part of one step; step 0 is the prefill.

    Attributes:
        layer: which, for attention and rest.
        activation_bytes: of all living tensors but the cache's, at its end.
        peak_bytes: the most of them at any time in the part.
        largest_bytes: the largest single tensor made in it.
        kv_used_bytes: of the keys and values written by now, layer by layer.
        kv_reserved_bytes: of the cache's tensors, whole blocks.
    """

    step: int
    phase: Phase
    part: Part
    layer: int | None
    activation_bytes: int
    peak_bytes: int
    largest_bytes: int
    kv_used_bytes: int
    kv_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A request, as far as it was measured.

    Attributes:
        n_tokens: positions of the prefill; of a prompt with `n_prompt` of them.
        score_table_bytes, logits_bytes: what the two tables take by formula in the prefill: h·n² numbers in one layer,
            and as many rows of V numbers as `switches` ask for.
        allocator_peak_bytes: what the device's own allocator had given out at most; None where it keeps no count.
    """

    n_prompt: int
    n_tokens: int
    switches: Switches
    moments: tuple[Moment, ...]
    score_table_bytes: int
    logits_bytes: int
    allocator_peak_bytes: int | None

    @property
    def has_ended(self) -> bool:
        """Whether it was measured to the end of the request."""
        return bool(self.moments) and self.moments[-1].part is Part.END

    def of(self, step: int, *parts: str) -> list[Moment]:
        """The moments of a step, of some parts (a `Part`, or its name) or of all."""
        return [moment for moment in self.moments if moment.step == step and (not parts or moment.part in parts)]

    def peak(self, step: int, *parts: str) -> int:
        """The most activation bytes in a step."""
        return max((moment.peak_bytes for moment in self.of(step, *parts)), default=0)

    def largest(self, step: int, *parts: str) -> int:
        """The largest single tensor of a step, the cache's own left out by the parts that are named."""
        return max((moment.largest_bytes for moment in self.of(step, *parts)), default=0)

    def layer_peaks(self, step: int) -> list[int]:
        """The most activation bytes in each layer of a step."""
        of_layers = self.of(step, Part.ATTENTION, Part.REST)
        layers = sorted({moment.layer for moment in of_layers if moment.layer is not None})
        return [max(moment.peak_bytes for moment in of_layers if moment.layer == layer) for layer in layers]
