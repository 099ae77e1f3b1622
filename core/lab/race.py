"""The same prompt twice, with the KV cache and recomputed, step by step in turn: tokens, logits, positions, seconds.

Both lanes take their n-th step one right after the other, so that what disturbs the machine meets both alike. A step
over more positions than `chunk_for` is cut into passes, each a point of the exclusive slot, and their seconds are added
up. Every pass may be done again: it begins by taking its lane back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.engine.prefix import chunk_for
from core.estimate.flops import head_flops, layers_flops
from core.estimate.kv import kv_bytes
from core.lab.until_ended import until_ended
from core.model.device import Device, Stopwatch
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, choose
from core.refusal import Refusal

LaneName = Literal["cached", "recomputed"]
LANES: tuple[LaneName, LaneName] = ("cached", "recomputed")
GREEDY = SamplingConfig(temperature=0.0)
LEAST_STEPS = 2
"""The prefill, which costs both lanes the same, and one decode step."""


def most_positions(device: Device) -> int:
    """Positions that the recomputing lane may send through the layers: some ten seconds of SmolLM2 on two CPU cores."""
    return 6144 if device.kind == "cpu" else 65536


@dataclass(frozen=True, slots=True)
class LaneStep:
    """One step of one lane: the model's seconds, positions through the layers, FLOP, and the token it chose."""

    seconds: float
    positions: int
    flops: int
    token_id: int


@dataclass(frozen=True, slots=True)
class RaceStep:
    """Both lanes at one context length.

    Attributes:
        n_tokens: positions that the newest query sees, itself included.
        logit_difference: the largest |difference| of the lanes' logits; None once they went on with different tokens.
    """

    n_tokens: int
    cached: LaneStep
    recomputed: LaneStep
    logit_difference: float | None


class Lanes(NamedTuple):
    """A figure of both lanes, and how many times the recomputing one has of it."""

    cached: float
    recomputed: float

    @property
    def ratio(self) -> float:
        """The recomputing lane's, divided by the other's."""
        return self.recomputed / self.cached if self.cached else 0.0


@dataclass(frozen=True, slots=True)
class RaceResult:
    """A race, as far as it came.

    `n_asked` tokens were asked for and `n_planned` allowed; `n_disturbed` points stayed disturbed by other programs.
    """

    n_prompt: int
    n_asked: int
    n_planned: int
    steps: tuple[RaceStep, ...]
    n_disturbed: int = 0

    @property
    def tokens_equal(self) -> bool:
        """Whether both lanes chose the same token in every step."""
        return all(step.cached.token_id == step.recomputed.token_id for step in self.steps)

    @property
    def logit_difference(self) -> float:
        """The largest difference of any logit in any step that could be compared."""
        return max((step.logit_difference for step in self.steps if step.logit_difference is not None), default=0.0)

    @property
    def seconds(self) -> Lanes:
        """Of all steps."""
        return self._sums(lambda step: step.seconds)

    @property
    def positions(self) -> Lanes:
        """Of all steps: P + N − 1 against P·N + N(N − 1)/2."""
        return self._sums(lambda step: step.positions)

    @property
    def flops(self) -> Lanes:
        """Of all steps."""
        return self._sums(lambda step: step.flops)

    @property
    def after_prefill(self) -> RaceResult:
        """The same without the first step, which is one for both."""
        return RaceResult(self.n_prompt, self.n_asked, self.n_planned, self.steps[1:], self.n_disturbed)

    def _sums(self, of: Callable[[LaneStep], float]) -> Lanes:
        return Lanes(sum(of(step.cached) for step in self.steps), sum(of(step.recomputed) for step in self.steps))


def n_steps_within(n_prompt: int, n_asked: int, most: int) -> int:
    """How many tokens the recomputing lane makes with at most so many positions: P·N + N(N−1)/2 of them."""
    steps = LEAST_STEPS
    while steps < n_asked and (steps + 1) * n_prompt + (steps + 1) * steps // 2 <= most:
        steps += 1
    return min(steps, n_asked)


@dataclass
class _Lane:
    """Where one lane is. `ids` is the prompt and its own tokens; `seconds` those of each pass of its steps."""

    ids: list[int]
    cache: KVCache
    logits: Tensor | None = None  # (vocab) of its newest step
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)  # (step, first position of the pass) → seconds
    steps: list[LaneStep] = field(default_factory=list)


class Race:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self, model: LanguageModel, prompt_ids: Sequence[int], n_new: int, sampling: SamplingConfig = GREEDY
    ) -> None:
        """Raises Refusal for a prompt that cannot be fed, or that leaves no room for two tokens."""
        model.check_prompt(prompt_ids)
        self._model, self._sampling, self._n_prompt, self._n_asked = model, sampling, len(prompt_ids), n_new
        room = model.config.context_limit - len(prompt_ids) + 1
        if min(n_new, room) < LEAST_STEPS:
            raise Refusal("race.too_short", least=LEAST_STEPS)
        self.n_planned = n_steps_within(len(prompt_ids), min(n_new, room), most_positions(model.device))
        self._chunk = chunk_for(model.device)
        self._lanes = {name: _Lane(list(prompt_ids), model.transformer.new_cache()) for name in LANES}
        self._steps: list[RaceStep] = []
        self._n_disturbed = 0

    @property
    def result(self) -> RaceResult:
        """What has been measured by now."""
        return RaceResult(self._n_prompt, self._n_asked, self.n_planned, tuple(self._steps), self._n_disturbed)

    @property
    def has_ended(self) -> bool:
        """Whether no further step comes: the last one is done, or both lanes have met an end token."""
        ends, last = self._model.end_token_ids, self._steps[-1:]
        has_met_end = any({step.cached.token_id, step.recomputed.token_id} <= ends for step in last)
        return len(self._steps) == self.n_planned or has_met_end

    def measurement(self, on_point: Callable[[RaceResult], None] = lambda result: None) -> Measurement:
        """The whole race for the exclusive slot; `on_point` hears of it in the engine's thread after every pass."""
        model, n = self._model, self._n_prompt + self.n_planned
        held = kv_bytes(model.shape, n_tokens=n, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)
        measurement = Measurement("race", self.points(), n_bytes=2 * int(held))

        def heard(point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)
            on_point(self.result)

        return until_ended(measurement, lambda: self.has_ended, heard)

    def points(self) -> list[Callable[[], None]]:
        """Every pass of both lanes in turn."""
        return [
            partial(self._pass, name, step, begin, end)
            for step in range(self.n_planned)
            for name in LANES
            for begin, end in pairwise(self._ends(name, step))
        ]

    def _ends(self, name: LaneName, step: int) -> list[int]:
        """Where the passes of a step begin and end: of all positions so far, or of the newest one alone."""
        n_tokens = self._n_prompt + step
        begin = n_tokens - 1 if name == "cached" and step else 0
        return [*range(begin, n_tokens, self._chunk), n_tokens]

    def _pass(self, name: LaneName, step: int, begin: int, end: int) -> None:
        model, lane = self._model, self._lanes[name]
        is_last = end == self._n_prompt + step
        if begin == 0:  # a prefill, or a step whose keys and values are for itself alone
            lane.cache = model.transformer.new_cache()
        lane.cache.truncate(begin)
        del lane.ids[self._n_prompt + step :], lane.steps[step:]
        with torch.inference_mode():
            with Stopwatch(model.device) as watch:
                ids = torch.tensor([lane.ids[begin:end]], device=model.device.torch_device)  # (1, n_new)
                newest = model.transformer.hidden(ids, [lane.cache])[:, -1]  # (1, n_new, d) → (1, d)
                if is_last:
                    lane.logits = model.transformer.logits(newest)[0]  # (1, vocab) → (vocab)
            lane.seconds[step, begin] = watch.seconds
            if is_last:
                self._finish_step(name, step)

    def _finish_step(self, name: LaneName, step: int) -> None:
        """The token is chosen; behind the second lane's, both are compared."""
        model, lane, shape = self._model, self._lanes[name], self._model.shape
        assert lane.logits is not None
        n_tokens = self._n_prompt + step
        seen = set(lane.ids) if self._sampling.repetition_penalty != 1 else ()
        token_id = choose(lane.logits, self._sampling, seen, model.tokenizer.vocab_size, n_tokens=n_tokens)
        passes = list(pairwise(self._ends(name, step)))
        in_layers = sum(layers_flops(shape, end - begin, begin) for begin, end in passes)
        lane.steps.append(
            LaneStep(
                seconds=sum(lane.seconds[step, begin] for begin, _ in passes),
                positions=passes[-1][1] - passes[0][0],
                flops=int(in_layers + head_flops(shape)),
                token_id=token_id,
            )
        )
        if name == "recomputed":
            self._compare(step)
        lane.ids.append(token_id)

    def _compare(self, step: int) -> None:
        cached, recomputed = (self._lanes[name] for name in LANES)
        n_tokens, difference = self._n_prompt + step, None
        if cached.ids[:n_tokens] == recomputed.ids[:n_tokens]:
            assert cached.logits is not None and recomputed.logits is not None
            difference = float((cached.logits - recomputed.logits).abs().max())
        del self._steps[step:]
        self._steps.append(RaceStep(n_tokens, cached.steps[step], recomputed.steps[step], difference))
