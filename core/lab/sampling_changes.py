"""Temperature, top-k, top-p: what they change and what they do not, by two runs of the engine step by step in turn.

One run is greedy, the other samples. Logits of a step are the same numbers before and after the filters, and from one
run to the other every step does the same products over as many positions: FLOP, bytes cached and bytes read are equal
exactly, and the pass takes as long but for noise. What is added is the choosing itself, whose seconds stand apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch

from core.engine.exclusive import Measurement, Point
from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.engine.trace import StepEvent
from core.estimate.kv import kv_bytes
from core.lab.before_after import GREEDY, Both
from core.lab.quality import Texts, texts
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel
from core.model.sampling import Candidate, SamplingConfig, filter_probabilities
from core.refusal import Refusal

LEAST_STEPS = 2
"""The prefill, and one decode step."""
N_CANDIDATES = 12
MOST_PROMPT = 256
"""Positions of a prompt in one pass: half a second of SmolLM2 on a CPU core."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The next token's distribution at one step, before and after the filters.

    Attributes:
        candidates: the likeliest tokens with both probabilities, best first.
        kept_count, kept_mass: how many tokens are kept, and their share after penalty and temperature.
        n_tokens_known: how many tokens there are to choose from.
    """

    candidates: tuple[Candidate, ...]
    kept_count: int
    kept_mass: float
    n_tokens_known: int


@dataclass(frozen=True, slots=True)
class SamplingChanges:
    """Both runs as far as they came, step by step: `greedy[i]` and `sampled[i]` are the same step of both.

    `n_prompt`: tokens of the prompt that were taken; `first`: the distribution behind it, None until it is computed.
    """

    sampling: SamplingConfig
    n_prompt: int
    first: Distribution | None
    greedy: tuple[StepEvent, ...]
    sampled: tuple[StepEvent, ...]
    texts: Texts
    n_disturbed: int = 0

    @property
    def costs_equal(self) -> bool:
        """Whether each step of both has the same FLOP, bytes cached and bytes read."""
        return all(_costs(a) == _costs(b) for a, b in zip(self.greedy, self.sampled, strict=True))

    @property
    def flops(self) -> Both:
        """Of all steps."""
        return self._sums(lambda event: event.flops_exact)

    @property
    def bytes_read(self) -> Both:
        """Of all steps."""
        return self._sums(lambda event: event.bytes_read)

    @property
    def kv_bytes(self) -> Both:
        """In the caches behind the newest step."""
        return Both(*(events[-1].kv_bytes if events else 0 for events in (self.greedy, self.sampled)))

    @property
    def pass_seconds(self) -> Both:
        """A decode step's pass through the model, the median of all."""
        return self._medians(lambda event: event.seconds)

    @property
    def choosing_seconds(self) -> Both:
        """From logits to the token, the median of all decode steps."""
        return self._medians(lambda event: event.sampled.seconds if event.sampled else 0.0)

    def _sums(self, of: Callable[[StepEvent], int]) -> Both:
        return Both(*(sum(of(event) for event in events) for events in (self.greedy, self.sampled)))

    def _medians(self, of: Callable[[StepEvent], float]) -> Both:
        steps = (events[1:] for events in (self.greedy, self.sampled))
        return Both(*(median([of(event) for event in events] or [0.0]) for events in steps))


def distribution(
    model: LanguageModel, logits: torch.Tensor, sampling: SamplingConfig, seen_ids: Sequence[int] = ()
) -> Distribution:
    """One step's logits [vocab] before and after the filters. Raises Refusal for logits that are no numbers."""
    n_usable = model.tokenizer.vocab_size
    filtered = filter_probabilities(logits, sampling, set(seen_ids), n_usable)
    return Distribution(filtered.candidates(N_CANDIDATES), filtered.kept_count, filtered.kept_mass, n_usable)


class SamplingExperiment:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, prompt_ids: Sequence[int], n_new: int, sampling: SamplingConfig) -> None:
        """No token ends these runs, so that both take all steps. Of a long prompt only the end is taken.

        Raises Refusal for a prompt that cannot be fed, or that leaves no room.
        """
        model.check_prompt(prompt_ids)
        prompt_ids = list(prompt_ids)[-MOST_PROMPT:]
        if n_new < LEAST_STEPS or len(prompt_ids) + n_new - 1 > model.config.context_limit:
            raise Refusal("techniques.quality_no_room", limit=model.config.context_limit)
        self._model, self._n_new = replace(model, end_token_ids=frozenset()), n_new
        self._end_token_ids, self._sampling = model.end_token_ids, sampling
        configs = (RunConfig(max_new=n_new, sampling=choice) for choice in (GREEDY, sampling))
        self._greedy, self._sampled = (Run(self._model, prompt_ids, config) for config in configs)
        self._first: Distribution | None = None
        self._n_disturbed = 0

    @property
    def result(self) -> SamplingChanges:
        """What has been measured by now: steps that both runs have taken."""
        n = len(self._sampled.steps)
        greedy, sampled = tuple(self._greedy.steps[:n]), tuple(self._sampled.steps[:n])
        chosen = ([event.sampled.token_id for event in events if event.sampled] for events in (greedy, sampled))
        shown = replace(self._model, end_token_ids=self._end_token_ids)
        prompt = self._greedy.prompt_ids
        both = texts(shown, prompt, *chosen)
        return SamplingChanges(self._sampling, len(prompt), self._first, greedy, sampled, both, self._n_disturbed)

    def measurement(self) -> Measurement:
        """Both runs for the exclusive slot, in turn."""
        model, n = self._model, len(self._greedy.prompt_ids) + self._n_new
        caches = 2 * kv_bytes(model.shape, n_tokens=n, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        return Measurement("sampling", self.points(), n_bytes=int(caches), on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """The distribution behind the prompt; then a step of one run, and the same step of the other."""
        runs = (self._greedy, self._sampled)
        return [self._look, *(partial(self._step, run, number) for number in range(self._n_new) for run in runs)]

    def _look(self) -> None:
        model, prompt = self._model, self._greedy.prompt_ids
        with torch.inference_mode():
            hidden = model.transformer.hidden(torch.tensor([prompt], device=model.device.torch_device))
            logits = model.transformer.logits(hidden[0, -1])
        self._first = distribution(model, logits, self._sampling, prompt)

    def _step(self, run: Run, number: int) -> None:
        while len(run.steps) > number:
            run.step_back()
        step(self._model, [run])


def _costs(event: StepEvent) -> tuple[int, ...]:
    return event.n_tokens, event.flops_exact, event.kv_bytes, event.weight_bytes_read, event.kv_bytes_read
