"""Speculative decoding measured beside plain decoding: the same text, pass by pass, each pass next to its plain steps.

First the prompt is put into the caches, and passes over 1 … γ + 1 positions are timed behind it. Then every point is
one draft with its pass, and the plain decode steps for the tokens that it gave: what disturbs the machine meets both
alike. The plain lane is fed with the text as it was written and says what it would have chosen, so that greedy
decoding is compared token by token.

In fp32 the greedy text is plain decoding's. With a rounded cache (f16, bf16) it may part from it: a pass over several
positions adds the attention's products up in another order than a single one, which now and then rounds a cached number
the other way, and where two logits lie nearer than what follows from that (SmolLM2 in f16: 0.004), another one is the
largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Literal

from core.engine.exclusive import Measurement, Point
from core.estimate.flops import decode_flops, head_flops, layers_flops
from core.lab.lane import Lane, cache_bytes, logits_behind
from core.lab.speculative.decoding import SpeculativeDecoder, Standing
from core.lab.speculative.drafting import Drafter, FirstLayers, PromptLookup
from core.lab.speculative.records import PassTime, PlainStep, SpeculativePass, SpeculativeResult
from core.lab.until_ended import until_ended
from core.model.device import Stopwatch
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, choose
from core.refusal import Refusal

DrafterName = Literal["lookup", "layers"]
MOST_GAMMA = 8
READINGS = 3
"""Of the clock, for each length of a pass: with `MOST_GAMMA` + 1 rows of SmolLM2 well under a second on a CPU core."""
GREEDY = SamplingConfig(temperature=0.0)


class Speculation:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        n_new: int,
        *,
        gamma: int = 4,
        drafter: DrafterName = "lookup",
        draft_layers: int = 1,
        sampling: SamplingConfig = GREEDY,
    ) -> None:
        """`draft_layers`: how many of the model's layers draft, for the drafter "layers".

        Raises Refusal for a prompt that cannot be fed or that leaves no room for a draft, and for a γ or a number of
        layers that is out of range.
        """
        model.check_prompt(prompt_ids)
        if not 1 <= gamma <= MOST_GAMMA:
            raise Refusal("techniques.speculative_gamma", gamma=gamma, most=MOST_GAMMA)
        room = model.config.context_limit - len(prompt_ids) + 1
        if room <= gamma or n_new < 1:
            raise Refusal("techniques.speculative_no_room", n_tokens=len(prompt_ids), least=gamma + 1)
        self._model, self._sampling, self._gamma = model, sampling, gamma
        self._n_prompt, self.n_planned = len(prompt_ids), min(n_new, room)
        self._draft_layers = draft_layers if drafter == "layers" else 0
        self._drafter: Drafter = PromptLookup()
        if drafter == "layers":
            self._drafter = FirstLayers(model, prompt_ids, draft_layers, sampling)
        self._decoder = SpeculativeDecoder(model, prompt_ids, self._drafter, gamma, sampling)
        self._plain_lane = Lane(model.transformer, model.device, prompt_ids)
        self._began: list[Standing] = []  # where each pass began
        self._passes: list[SpeculativePass] = []
        self._plain: list[PlainStep] = []
        self._pass_times: dict[int, PassTime] = {}
        self._timed = 0  # positions of the pass that the point under way times
        self._n_disturbed = 0

    @property
    def result(self) -> SpeculativeResult:
        """What has been measured by now."""
        return SpeculativeResult(
            n_prompt=self._n_prompt,
            n_planned=self.n_planned,
            gamma=self._gamma,
            drafter=self._drafter.name,
            draft_layers=self._draft_layers,
            is_greedy=self._sampling.is_greedy,
            passes=tuple(self._passes),
            plain=tuple(self._plain),
            pass_times=tuple(self._pass_times.values()),
            n_disturbed=self._n_disturbed,
        )

    @property
    def has_ended(self) -> bool:
        """Whether no further token comes: all are there, or the last one is an end token."""
        ids = self._decoder.lane.ids
        n_new = len(ids) - self._n_prompt
        return n_new > 0 and (n_new >= self.n_planned or ids[-1] in self._model.end_token_ids)

    def measurement(self, on_point: Callable[[SpeculativeResult], None] = lambda result: None) -> Measurement:
        """All of it for the exclusive slot; `on_point` hears of it in the engine's thread after every point."""
        model, n = self._model, self._n_prompt + self.n_planned + self._gamma
        held = 2 * cache_bytes(model, n) + cache_bytes(model, n) * self._draft_layers // model.config.n_layers
        measurement = Measurement("speculative", self.points(), n_bytes=held)

        def heard(point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)
            if point.disturbed and self._timed:
                self._pass_times[self._timed] = replace(self._pass_times[self._timed], is_disturbed=True)
            on_point(self.result)

        return until_ended(measurement, lambda: self.has_ended, heard)

    def points(self) -> list[Callable[[], None]]:
        """The prompt into the caches, the timed passes, and as many passes as there can be: one token each."""
        lanes = (self._decoder.lane, self._plain_lane)
        filling = [*self._drafter.fill_points(), *(point for lane in lanes for point in lane.fill_points())]
        timing = [partial(self._time, n_positions) for n_positions in range(1, self._gamma + 2)]
        return [*filling, *timing, *(partial(self._pass, number) for number in range(self.n_planned))]

    def _time(self, n_positions: int) -> None:
        """Passes over so many positions behind the prompt; which tokens they are makes no difference to the time. The
        first reading warms up: it follows a pass of another shape.
        """
        model, lane = self._model, self._plain_lane
        n_past, seconds = self._n_prompt - 1, []
        ids = (lane.ids[: self._n_prompt] * n_positions)[-n_positions:]
        self._timed = n_positions
        for _ in range(1 + READINGS):
            lane.cache.truncate(n_past)
            with Stopwatch(model.device) as watch:
                logits_behind(model.transformer, ids, lane.cache)
            seconds.append(watch.seconds)
        lane.cache.truncate(n_past)
        flops = int(layers_flops(model.shape, n_positions, n_past) + head_flops(model.shape, n_positions))
        self._pass_times[n_positions] = PassTime(n_positions, median(seconds[1:]), flops)

    def _pass(self, number: int) -> None:
        """The pass of that number, and plainly the tokens that it gave; nothing once the text has ended."""
        self._timed = 0
        if number < len(self._passes):
            self._decoder.go_back(self._began[number])
            n_before = self._began[number].n_tokens
            self._plain_lane.go_back(n_before)
            del self._began[number:], self._passes[number:], self._plain[n_before - self._n_prompt :]
        if self.has_ended:
            return
        self._began.append(self._decoder.standing)
        n_before = len(self._decoder.lane.ids)
        self._passes.append(self._decoder.step(self.n_planned - (n_before - self._n_prompt)))
        for token_id in self._passes[-1].token_ids:
            self._plain.append(self._plain_step())
            self._plain_lane.ids.append(token_id)

    def _plain_step(self) -> PlainStep:
        model, lane, sampling = self._model, self._plain_lane, self._sampling
        n_tokens = len(lane.ids)
        with Stopwatch(model.device) as watch:
            logits = lane.next_logits()
            seen = set(lane.ids) if sampling.repetition_penalty != 1 else ()
            token_id = choose(logits, sampling, seen, model.tokenizer.vocab_size, n_tokens=n_tokens)
        return PlainStep(watch.seconds, int(decode_flops(model.shape, n_tokens)), token_id)
