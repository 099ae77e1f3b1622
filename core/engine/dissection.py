"""A step's layer taken apart: every operator in order, its shapes, what it computes, reads and writes, and its seconds.

What is counted comes from `core.estimate.traffic`, layer by layer; the sum over all layers and the head is the step's
own FLOP, weight bytes and cache bytes to the unit. Seconds are put in by `core.engine.microscope`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from core.engine.layer_operators import LayerOperator, head_operators, layer_operators, summed
from core.engine.run import RunConfig
from core.engine.trace import Phase, StepEvent
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.traffic import Operator, Pass
from core.model.load import LanguageModel


class Timed(NamedTuple):
    """What was timed as one, the median of its readings: an operator, or those that one kernel computes together."""

    covers: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dissection:
    """One layer of one step. A long prefix takes several passes; `at` says which of them the operators belong to.

    Attributes:
        operators: of the layer, in order.
        head: the last norm and the output head, which a step computes once.
        timings: in order, of layer and head; empty as long as nothing was measured.
        n_readings: how often each was timed.
        pass_seconds: the whole pass, all layers and the head, computed again in one go.
    """

    step: int
    layer: int
    n_layers: int
    event: StepEvent
    passes: tuple[Pass, ...]
    at: int
    operators: tuple[LayerOperator, ...]
    head: tuple[LayerOperator, ...]
    layer_cost: Operator
    timings: tuple[Timed, ...] = ()
    n_readings: int = 0
    pass_seconds: float = 0.0

    @property
    def made(self) -> Pass:
        """The pass whose operators these are."""
        return self.passes[self.at]

    @property
    def pass_cost(self) -> Operator:
        """The layer in this pass."""
        return summed("layer", (one.cost for one in self.operators))

    @property
    def step_cost(self) -> Operator:
        """All layers in all passes, and the head."""
        return summed("step", [*[self.layer_cost] * self.n_layers, *(one.cost for one in self.head)])

    @property
    def gaps(self) -> tuple[int, int, int]:
        """How far the sums are from what the step's record says of FLOP, weight bytes and cache bytes read."""
        cost, event = self.step_cost, self.event
        return (
            cost.flops - event.flops_exact,
            cost.weights_read - event.weight_bytes_read,
            cost.kv_read - event.kv_bytes_read,
        )

    def seconds_of(self, *names: str) -> float:
        """What these took together. A kernel counts when all it computes is among them."""
        return sum(timed.seconds for timed in self.timings if set(timed.covers) <= set(names))

    @property
    def layer_seconds(self) -> float:
        """All operators of the layer."""
        return self.seconds_of(*(one.name for one in self.operators))

    @property
    def head_seconds(self) -> float:
        """The last norm and the head."""
        return self.seconds_of(*(one.name for one in self.head))


def dissection(model: LanguageModel, config: RunConfig, event: StepEvent, step: int, layer: int) -> Dissection:
    """Layer number `layer` of a step, counted: all but the times. ValueError for a layer that does not exist."""
    n_layers = model.config.n_layers
    if not 0 <= layer < n_layers:
        raise ValueError(f"layer {layer} does not exist: there are {n_layers}")
    passes = _passes(model, config, event)
    at = max(range(len(passes)), key=lambda index: (passes[index].n_new, index))  # the last of the longest
    return Dissection(
        step=step,
        layer=layer,
        n_layers=n_layers,
        event=event,
        passes=passes,
        at=at,
        operators=layer_operators(model, passes[at]),
        head=head_operators(model, passes[at]),
        layer_cost=summed("layer", (one.cost for made in passes for one in layer_operators(model, made))),
    )


def _passes(model: LanguageModel, config: RunConfig, event: StepEvent) -> tuple[Pass, ...]:
    """The passes of a step: one, or the chunks of a prefix."""
    is_decode = event.phase is Phase.DECODE
    chunk = 1 if is_decode else config.prefill_chunk or event.new_positions
    whole, rest = divmod(event.new_positions, chunk)
    sizes = [chunk] * whole + [rest] * bool(rest)
    pasts = accumulate(sizes[:-1], initial=event.reused_positions)
    stored, activations = WeightDtypes(DTYPES[model.dtype_name]), model.transformer.activation_dtype.itemsize
    return tuple(
        Pass(new, past, 1, stored, model.kv_dtypes, activations, of_prefix=not is_decode)
        for new, past in zip(sizes, pasts, strict=True)
    )
