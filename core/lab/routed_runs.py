"""A small layer with experts on the live model's hidden states: two routers trained, four run over batches of tokens.

Every batch is B positions drawn at random from all that the model read, as B visitors in the middle of their answers
would be. What is measured is the layer alone: which experts it multiplied with, the bytes of them, the seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from weakref import WeakMethod

import torch
from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.estimate.shape import Experts
from core.lab.routed_layer import (
    RoutedLayer,
    Routing,
    choose_experts,
    probabilities,
    uniform_routing,
)
from core.lab.routed_record import (
    BATCHES,
    EXPERTS,
    N_BATCHES,
    N_STATES,
    ROUTERS,
    RoutedPoint,
    RoutedResult,
    RouterName,
    expert_bytes,
    routed_layer,
)
from core.lab.router_training import Training, feed_forward_states, sequences, unit_scale
from core.model.device import Stopwatch
from core.model.load import LanguageModel

N_TRAINING_STEPS, STEPS_A_POINT = 48, 4
EDGE_STEPS = 4
"""Over so many of the first and last training steps an error is averaged."""


class RoutedRuns:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        experts: Experts = EXPERTS,
        batches: Sequence[int] = BATCHES,
        n_batches: int = N_BATCHES,
        n_states: int = N_STATES,
        n_training_steps: int = N_TRAINING_STEPS,
        seed: int = 0,
    ) -> None:
        self._model, self._experts, self._batches, self._n_batches = model, experts, tuple(batches), n_batches
        self._n_training_steps, self._seed = n_training_steps, seed
        self._layer_index = routed_layer(model.config.n_layers)
        self._sequences = sequences(model, n_states)
        self._states: dict[int, tuple[Tensor, Tensor]] = {}  # sequence → [n, d] into the dense part, and out of it
        self._training: Training | None = None
        self._trained: dict[RouterName, tuple[Tensor, RoutedLayer]] = {}
        self._errors: dict[RouterName, list[float]] = {"unbalanced": [], "balanced": []}
        self._inputs: Tensor | None = None  # (N, d)
        self._points: dict[tuple[RouterName, int], RoutedPoint] = {}
        self._choices: dict[tuple[RouterName, int], Tensor] = {}  # (E) of each point
        self._n_disturbed = 0

    @property
    def result(self) -> RoutedResult:
        """What has been measured by now."""
        E, edge = self._experts.n_experts, EDGE_STEPS
        return RoutedResult(
            model=self._model.name,
            layer=self._layer_index,
            n_states=sum(map(len, self._sequences)),
            experts=self._experts,
            expert_bytes=expert_bytes(self._experts, self._model.config.d_model),
            points=tuple(self._points.values()),
            shares={
                router: tuple((counted * self._experts.n_active / counted.sum()).tolist())
                for router in ROUTERS
                if bool((counted := self._counted(router, E)).any())
            },
            errors={
                router: (fmean(errors[:edge]), fmean(errors[-edge:]))
                for router, errors in self._errors.items()
                if errors
            },
            n_planned=len(ROUTERS) * len(self._batches),
            n_disturbed=self._n_disturbed,
        )

    def _counted(self, router: RouterName, n_experts: int) -> Tensor:
        of_points = [choices for (name, _), choices in list(self._choices.items()) if name == router]
        return sum(of_points, torch.zeros(n_experts, dtype=torch.float64))

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot."""
        one_layer = self.result.expert_bytes * self._experts.n_experts
        states = 2 * self.result.n_states * self._model.config.d_model * torch.float32.itemsize
        # Two trained layers; while one is trained, its gradients and Adam's two means beside it.
        measurement = Measurement("experts", self.points(), n_bytes=5 * one_layer + 2 * states)
        heard = WeakMethod(self._heard)
        measurement.on_point = lambda index, point: None if (hear := heard()) is None else hear(point)
        return measurement

    def points(self) -> list[Callable[[], None]]:
        """Hidden states sequence by sequence, some steps of each training, then all routers at each batch in turn."""
        kinds: tuple[RouterName, RouterName] = ("unbalanced", "balanced")
        return [
            *(partial(self._read, index) for index in range(len(self._sequences))),
            *(
                partial(self._train, router, step)
                for router in kinds
                for step in range(0, self._n_training_steps, STEPS_A_POINT)
            ),
            *(partial(self._run, router, batch) for batch in self._batches for router in ROUTERS),
        ]

    def _heard(self, point: Point) -> None:
        self._n_disturbed += bool(point.disturbed) and bool(self._points)  # of those that are timed

    def _read(self, index: int) -> None:
        if index not in self._states:  # nothing is timed here: once is enough, whoever else used the cores
            self._states[index] = feed_forward_states(self._model, self._sequences[index], self._layer_index)

    def _train(self, router: RouterName, begin: int) -> None:
        """Steps from `begin` on; those that were taken, before a disturbance was noticed, are not taken again."""
        if router in self._trained:
            return
        errors = self._errors[router]
        if self._training is None:
            ordered = [self._states[index] for index in range(len(self._sequences))]
            inputs, targets = (torch.cat(rows) for rows in zip(*ordered, strict=True))  # (n, d) each → (N, d)
            self._inputs = unit_scale(inputs)
            is_balanced = router == "balanced"
            self._training = Training(self._experts, inputs, targets, balanced=is_balanced, seed=self._seed)
        end = min(begin + STEPS_A_POINT, self._n_training_steps)
        while len(errors) < end:
            errors.append(self._training.step())
        if end == self._n_training_steps:
            self._trained[router] = self._training.router.detach(), self._training.layer
            self._training = None

    def _run(self, router: RouterName, batch: int) -> None:
        """One router's batches of one size: routed first, then through the layer with the clock running."""
        # Choices and inputs that no training made go through the experts of the balanced one.
        layer = self._trained["unbalanced" if router == "unbalanced" else "balanced"][1]
        device = layer.down.device
        generator = torch.Generator(device=device).manual_seed(self._seed + batch)
        choices = torch.zeros(self._experts.n_experts, dtype=torch.float64)
        distinct, n_bytes, seconds = [], [], []
        with torch.inference_mode():
            for _ in range(self._n_batches):
                x, routing = self._routed(router, batch, generator)
                with Stopwatch(self._model.device) as watch:
                    passed = layer(x, routing)
                distinct.append(len(passed.touched))
                n_bytes.append(passed.bytes_read)
                seconds.append(watch.seconds)
                choices += routing.experts.flatten().bincount(minlength=len(choices)).cpu()  # (B, k) → (E)
        self._choices[router, batch] = choices
        self._points[router, batch] = RoutedPoint(
            router=router,
            batch=batch,
            distinct=tuple(distinct),
            bytes_read=tuple(n_bytes),
            seconds=tuple(seconds),
        )

    def _routed(self, router: RouterName, batch: int, generator: torch.Generator) -> tuple[Tensor, Routing]:
        """A batch x [B, d] and where its tokens go."""
        assert self._inputs is not None
        n_active, (n, d), device = self._experts.n_active, self._inputs.shape, generator.device
        rows = torch.randint(n, (batch,), generator=generator, device=device)
        x = self._inputs[rows]
        if router == "uniform":
            return x, uniform_routing(batch, self._experts, generator)
        if router == "random":
            x = torch.randn(batch, d, generator=generator, device=device)
            fixed = torch.Generator(device=device).manual_seed(self._seed)  # one router for all batches
            weights = torch.randn(self._experts.n_experts, d, generator=fixed, device=device) * d**-0.5
        else:
            weights = self._trained[router][0]
        return x, choose_experts(probabilities(weights, x), n_active)
