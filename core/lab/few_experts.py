"""A few experts instead of all, measured: one small layer on the hidden states of the live model's own prompt.

Its tokens go through it three ways: through all experts, as in a dense layer of as many weights; through k of them
drawn at random, as the formula supposes; and through the k that a router of random weights chooses from the states
themselves, which are alike where the text is. Every batch is B positions drawn from the prompt, the same for all three.
Weights are random: what is measured is which experts are met, what is read, multiplied and waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.estimate import traffic
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.shape import Experts, LayerGroup, ModelShape
from core.estimate.weights import expected_distinct_experts
from core.lab.routed_layer import (
    RoutedLayer,
    Routing,
    choose_experts,
    probabilities,
    random_layer,
    uniform_routing,
)
from core.lab.routed_record import EXPERTS, RoutedPoint, RoutedPoints, RouterName, expert_bytes, routed_layer
from core.lab.router_training import feed_forward_states, unit_scale
from core.lab.timeline import most_positions
from core.model.device import Stopwatch
from core.model.load import LanguageModel
from core.refusal import Refusal

BATCHES = (1, 4, 16, 64)
N_BATCHES = 16
WAYS: tuple[RouterName, RouterName, RouterName] = ("all", "uniform", "random")
FP32 = WeightDtypes(DTYPES["f32"])


@dataclass(frozen=True, slots=True)
class FewExpertsResult(RoutedPoints):
    """What has been measured by now, and what the estimate says of the same layer.

    Attributes:
        shape: of a model with this one layer, for the estimate.
        layer: before which layer's feed-forward part the states were taken; n_states of them.
        expert_bytes: of one expert's matrices.
    """

    shape: ModelShape
    experts: Experts
    layer: int
    n_states: int
    expert_bytes: int
    points: tuple[RoutedPoint, ...]
    n_planned: int
    n_disturbed: int = 0

    @property
    def resident_bytes(self) -> int:
        """Of all experts, whichever are chosen."""
        return self.experts.n_experts * self.expert_bytes

    def expected_distinct(self, batch: int) -> float:
        """E·(1 − (1 − k/E)^B)."""
        return float(expected_distinct_experts(self.experts, batch))

    def flops(self, way: RouterName, batch: int) -> int:
        """Of the experts' matrices, by the estimate."""
        return sum(one.flops for one in self._operators(way, batch))

    def expected_bytes(self, way: RouterName, batch: int) -> int:
        """Read of the experts' matrices, by the estimate."""
        return sum(one.weights_read for one in self._operators(way, batch))

    def _operators(self, way: RouterName, batch: int) -> list[traffic.Operator]:
        experts = replace(self.experts, n_active=self.experts.n_experts) if way == "all" else self.experts
        made = traffic.Pass(1, batch=batch, weight_dtypes=FP32)
        operators = traffic.operators(one_layer(self.shape, experts), made)
        return [one for one in operators if one.name.startswith("expert_")]


def one_layer(shape: ModelShape, experts: Experts) -> ModelShape:
    """A model of one layer, its feed-forward part made of experts."""
    group: LayerGroup = replace(shape.groups[0], n_layers=1, feed_forward=experts)
    return replace(shape, groups=(group,))


class FewExperts:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        experts: Experts = EXPERTS,
        batches: Sequence[int] = BATCHES,
        n_batches: int = N_BATCHES,
        seed: int = 0,
    ) -> None:
        """Raises Refusal for a prompt that cannot be fed, or that is too long for one pass."""
        model.check_prompt(prompt_ids)
        most = most_positions(model.device)
        if len(prompt_ids) > most:
            raise Refusal("techniques.prompt_too_long", n_tokens=len(prompt_ids), most=most)
        self._model, self._ids, self._experts = model, list(prompt_ids), experts
        self._batches, self._n_batches, self._seed = tuple(batches), n_batches, seed
        self._index = routed_layer(model.config.n_layers)
        self._states: Tensor | None = None  # (n, d)
        self._layer: RoutedLayer | None = None
        self._router: Tensor | None = None  # (E, d)
        self._points: dict[tuple[RouterName, int], RoutedPoint] = {}
        self._n_disturbed = 0

    @property
    def result(self) -> FewExpertsResult:
        """What has been measured by now."""
        return FewExpertsResult(
            shape=self._model.shape,
            experts=self._experts,
            layer=self._index,
            n_states=len(self._ids),
            expert_bytes=expert_bytes(self._experts, self._model.config.d_model),
            points=tuple(self._points.values()),
            n_planned=len(WAYS) * len(self._batches),
            n_disturbed=self._n_disturbed,
        )

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot."""
        states = 2 * len(self._ids) * self._model.config.d_model * torch.float32.itemsize

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        n_bytes = self.result.resident_bytes + states
        return Measurement("few experts", self.points(), n_bytes=n_bytes, on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """The states, the layer, then all ways at each batch in turn. A point may be done again."""
        runs = (partial(self._run, way, batch) for batch in self._batches for way in WAYS)
        return [self._read, self._make, *runs]

    def _read(self) -> None:
        self._states = unit_scale(feed_forward_states(self._model, self._ids, self._index)[0])

    def _make(self) -> None:
        d, device = self._model.config.d_model, self._model.device.torch_device
        generator = torch.Generator(device=device).manual_seed(self._seed)
        self._layer = random_layer(self._experts, d, generator)
        self._router = torch.randn(self._experts.n_experts, d, generator=generator, device=device) * d**-0.5

    def _run(self, way: RouterName, batch: int) -> None:
        """Batches of one size one way: routed first, then through the layer with the clock running."""
        assert self._states is not None and self._layer is not None
        device = self._states.device
        drawing, routing_by = (torch.Generator(device=device).manual_seed(self._seed + batch) for _ in range(2))
        distinct, n_bytes, seconds = [], [], []
        with torch.inference_mode():
            for _ in range(self._n_batches):
                rows = torch.randint(len(self._states), (batch,), generator=drawing, device=device)
                x = self._states[rows]  # (n, d) → (B, d)
                routing = self._routed(way, x, routing_by)
                with Stopwatch(self._model.device) as watch:
                    passed = self._layer(x, routing)
                distinct.append(len(passed.touched))
                n_bytes.append(passed.bytes_read)
                seconds.append(watch.seconds)
        self._points[way, batch] = RoutedPoint(
            router=way, batch=batch, distinct=tuple(distinct), bytes_read=tuple(n_bytes), seconds=tuple(seconds)
        )

    def _routed(self, way: RouterName, x: Tensor, generator: torch.Generator) -> Routing:
        """Where the tokens of a batch x [B, d] go."""
        if way == "all":
            E = self._experts.n_experts
            everywhere = torch.arange(E, device=x.device).expand(len(x), E)
            return Routing(everywhere, torch.full(everywhere.shape, 1 / E, device=x.device))
        if way == "uniform":
            return uniform_routing(len(x), self._experts, generator)
        assert self._router is not None
        return choose_experts(probabilities(self._router, x), self._experts.n_active)
