"""A long run for real: decode step after decode step up to a model's context limit, each with its bytes and seconds.

The text is sampled, and no end token ends it: what is looked at is what a long text costs, not what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from core.engine.exclusive import Measurement, Point
from core.estimate.flops import decode_flops
from core.estimate.kv import kv_bytes
from core.lab.lane import Lane, cache_bytes, without_end_tokens
from core.model.device import Device, Stopwatch
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, choose
from core.refusal import Refusal

STEPS_A_POINT = 16
SAMPLING = SamplingConfig(temperature=1.0, top_p=0.95)


def most_numbers(device: Device) -> float:
    """Steps times parameters that a run may take: some ten seconds on two CPU cores that do nothing else."""
    return 5e10 if device.kind == "cpu" else 2e12


@dataclass(frozen=True, slots=True)
class ThoughtStep:
    """One decode step.

    Attributes:
        n_tokens: positions in the cache behind it, the new one included.
        seconds: of the model and the choice.
        kv_bytes, kv_reserved_bytes: the tensors' own; `kv_bytes_formula`: M_KV at n_tokens.
        flops: by the exact count.
        is_disturbed: whether it is one of a point that stayed disturbed by other programs.
    """

    n_tokens: int
    seconds: float
    kv_bytes: int
    kv_reserved_bytes: int
    kv_bytes_formula: int
    flops: int
    token_id: int
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True)
class ThoughtResult:
    """A long run, as far as it came. `context_limit` is the model's."""

    n_prompt: int
    n_planned: int
    context_limit: int
    steps: tuple[ThoughtStep, ...]
    n_disturbed: int = 0

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(step.seconds for step in self.steps)

    def median_seconds(self, begin: int, end: int) -> float | None:
        """Of the steps begin … end−1; negative numbers count from the end, as in a slice. None where there is none."""
        chosen = [step.seconds for step in self.steps[begin : end or None]]
        return median(chosen) if chosen else None

    def is_disturbed(self, begin: int, end: int) -> bool:
        """Whether any of the steps begin … end−1 is, counted as in `median_seconds`."""
        return any(step.is_disturbed for step in self.steps[begin : end or None])


class LongThought:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        n_new: int | None = None,
        sampling: SamplingConfig = SAMPLING,
    ) -> None:
        """`n_new`: decode steps, None for as many as the context and ten seconds allow.

        Raises Refusal for a prompt that cannot be fed or that fills the context.
        """
        model.check_prompt(prompt_ids)
        limit = model.config.context_limit
        room = limit - len(prompt_ids) + 1
        if room < 2 or (n_new is not None and n_new < 1):
            raise Refusal("techniques.thought_no_room", n_tokens=len(prompt_ids), limit=limit)
        allowed = max(1, int(most_numbers(model.device) // (model.transformer.product_bytes // model.element_bytes)))
        self._model, self._sampling, self._n_prompt = model, sampling, len(prompt_ids)
        self.n_planned = min(room, allowed, n_new or room)
        self._lane = Lane(model.transformer, model.device, prompt_ids)
        self._steps: list[ThoughtStep] = []
        self._n_disturbed = 0

    @property
    def result(self) -> ThoughtResult:
        """What has been measured by now."""
        limit = self._model.config.context_limit
        return ThoughtResult(self._n_prompt, self.n_planned, limit, tuple(self._steps), self._n_disturbed)

    def measurement(self, on_point: Callable[[ThoughtResult], None] = lambda result: None) -> Measurement:
        """All of it for the exclusive slot; `on_point` hears of it in the engine's thread after every point."""
        n_bytes = cache_bytes(self._model, self._n_prompt + self.n_planned)
        points = self.points()
        measurement = Measurement("long thought", points, n_bytes=n_bytes)
        n_before = len(points) - len(self._begins)

        def heard(index: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)
            if point.disturbed and index >= n_before:
                begin = self._begins[index - n_before]
                self._steps[begin:] = [replace(step, is_disturbed=True) for step in self._steps[begin:]]
            on_point(self.result)

        measurement.on_point = heard
        return measurement

    def points(self) -> list[Callable[[], None]]:
        """The prompt into the cache, steps that warm up, then so many steps a point. A point may be done again."""
        steps = (partial(self._go_on, begin) for begin in self._begins)
        return [*self._lane.fill_points(), self._warm_up, *steps]

    @property
    def _begins(self) -> range:
        return range(0, self.n_planned, STEPS_A_POINT)

    def _warm_up(self) -> None:
        """Steps that are taken back: the first ones pay for what is made once."""
        self._lane.go_back(self._n_prompt)
        for _ in range(min(STEPS_A_POINT, self.n_planned)):
            self._step()

    def _go_on(self, begin: int) -> None:
        self._lane.go_back(self._n_prompt + begin)
        del self._steps[begin:]
        for _ in range(min(STEPS_A_POINT, self.n_planned - begin)):
            self._steps.append(self._step())

    def _step(self) -> ThoughtStep:
        model, lane = self._model, self._lane
        n = len(lane.ids)
        with Stopwatch(model.device) as watch:
            logits = without_end_tokens(model, lane.next_logits())
            seen = set(lane.ids) if self._sampling.repetition_penalty != 1 else ()
            token_id = choose(logits, self._sampling, seen, model.tokenizer.vocab_size, n_tokens=n)
        lane.ids.append(token_id)
        return ThoughtStep(
            n_tokens=n,
            seconds=watch.seconds,
            kv_bytes=lane.cache.used_bytes,
            kv_reserved_bytes=lane.cache.reserved_bytes,
            kv_bytes_formula=int(kv_bytes(model.shape, n_tokens=n, dtypes=model.kv_dtypes)),
            flops=int(decode_flops(model.shape, n)),
            token_id=token_id,
        )
