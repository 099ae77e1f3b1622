"""Can two tokens be decoded at once? The second predicted before the first is known, something else in its slot.

Both positions go through the layers in one pass: the newest token, and in the unknown token's slot a guess, the newest
token once more, or the mean of all embeddings (a token that says nothing). The second position then predicts as if its
slot were true. Where the guess was right the second token is right as well, for nothing; where it was wrong, the
distribution is that of another text. So the first token has to be guessed, and how often a guess is right decides what
it is worth: that is speculative decoding with γ = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.lab.lane import Lane, best_going_on, cache_bytes, difference, through_cache, usable
from core.lab.speculative.drafting import FirstLayers, followers
from core.model.device import Stopwatch
from core.model.load import LanguageModel
from core.model.sampling import Candidate, SamplingConfig, candidates
from core.refusal import Refusal

N_LIKELY = 5
PLAIN = SamplingConfig(temperature=1.0)


class Filler(StrEnum):
    """What stands in the slot of the token that is not known yet."""

    MEAN = "mean"
    REPEATED = "repeated"
    LOOKUP = "lookup"
    LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The second token predicted with a filler in the first one's slot.

    Attributes:
        guessed_id: the filler; None for the mean embedding, which is no token.
        second_id: what is predicted behind it; `likely` the most likely tokens there, best first.
        logit_difference, kl: from the prediction behind the true first token; KL in nats.
        first_difference: the largest |difference| of the first token's own logits, which see nothing to their right.
        seconds: of the one pass over both positions.
    """

    filler: Filler
    guessed_id: int | None
    second_id: int
    likely: tuple[Candidate, ...]
    logit_difference: float
    kl: float
    first_difference: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TwoStep:
    """Two tokens one after the other as they must be, in `seconds`, and every attempt at both in one pass.

    `likely`: the most likely tokens behind the true first one, best first.
    """

    n_tokens: int
    first_id: int
    second_id: int
    likely: tuple[Candidate, ...]
    seconds: float
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class FillerSum:
    """How one filler fared: tries, guesses that were the first token (the acceptance), and what the second was worth.

    Mean KL in nats; None where there is no such try.
    """

    n_tried: int
    n_right: int
    n_second_right_behind_right: int
    n_second_right_behind_wrong: int
    kl_behind_right: float | None
    kl_behind_wrong: float | None

    @property
    def acceptance(self) -> float | None:
        """The share of guesses that were right."""
        return self.n_right / self.n_tried if self.n_tried else None


@dataclass(frozen=True, slots=True)
class TwoAtOnceResult:
    """All steps so far. A filler that had nothing to propose in a step has no attempt there."""

    n_prompt: int
    n_planned: int
    draft_layers: int
    steps: tuple[TwoStep, ...]
    n_disturbed: int = 0

    def of(self, filler: Filler) -> FillerSum:
        """How a filler fared in all steps."""
        tried = [(step, attempt) for step in self.steps for attempt in step.attempts if attempt.filler is filler]
        right = [(step, attempt) for step, attempt in tried if attempt.guessed_id == step.first_id]
        wrong = [(step, attempt) for step, attempt in tried if attempt.guessed_id != step.first_id]
        return FillerSum(
            n_tried=len(tried),
            n_right=len(right),
            n_second_right_behind_right=sum(attempt.second_id == step.second_id for step, attempt in right),
            n_second_right_behind_wrong=sum(attempt.second_id == step.second_id for step, attempt in wrong),
            kl_behind_right=_mean([attempt.kl for _, attempt in right]),
            kl_behind_wrong=_mean([attempt.kl for _, attempt in wrong]),
        )

    @property
    def seconds_apart(self) -> float | None:
        """Mean seconds of two passes, one token each."""
        return _mean([step.seconds for step in self.steps])

    @property
    def seconds_at_once(self) -> float | None:
        """Mean seconds of one pass over both positions."""
        return _mean([attempt.seconds for step in self.steps for attempt in step.attempts])


class TwoAtOnce:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any.

    The text goes on greedily, and no end token ends it.
    """

    def __init__(self, model: LanguageModel, prompt_ids: Sequence[int], n_steps: int = 24) -> None:
        """Half of the model's layers guess, where it has more than one.

        Raises Refusal for a prompt that cannot be fed, or behind which there is no room for two tokens.
        """
        model.check_prompt(prompt_ids)
        room = model.config.context_limit - len(prompt_ids)
        if min(room, n_steps) < 1:
            raise Refusal("techniques.speculative_no_room", n_tokens=len(prompt_ids), least=2)
        self._model, self._n_prompt, self.n_planned = model, len(prompt_ids), min(n_steps, room)
        self._lane = Lane(model.transformer, model.device, prompt_ids)
        self._draft_layers = model.config.n_layers // 2
        self._layers = None
        if self._draft_layers:
            self._layers = FirstLayers(model, prompt_ids, self._draft_layers, SamplingConfig())
        self._mean: Tensor | None = None  # (d)
        self._steps: list[TwoStep] = []
        self._n_disturbed = 0

    @property
    def result(self) -> TwoAtOnceResult:
        """What has been measured by now."""
        return TwoAtOnceResult(
            self._n_prompt, self.n_planned, self._draft_layers, tuple(self._steps), self._n_disturbed
        )

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot."""
        n_bytes = 2 * cache_bytes(self._model, self._n_prompt + self.n_planned + 1)

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        return Measurement("two at once", self.points(), n_bytes=n_bytes, on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """The prompt into the caches, then two tokens and all attempts a point. A point may be done again."""
        filling = [*self._lane.fill_points(), *([] if self._layers is None else self._layers.fill_points())]
        return [*filling, *(partial(self._step, step) for step in range(self.n_planned))]

    def _step(self, step: int) -> None:
        model, lane, n_tokens = self._model, self._lane, self._n_prompt + step
        lane.go_back(n_tokens)
        del self._steps[step:]
        with Stopwatch(model.device) as watch:
            true_first = lane.next_logits()
            first_id = best_going_on(model, true_first)
            lane.ids.append(first_id)
            true_second = lane.next_logits()
            second_id = best_going_on(model, true_second)
        lane.go_back(n_tokens)
        attempts = tuple(self._attempt(*filled, true_first, true_second) for filled in self._fillers(n_tokens))
        self._steps.append(TwoStep(n_tokens, first_id, second_id, self._likely(true_second), watch.seconds, attempts))
        lane.ids.append(first_id)

    def _fillers(self, n_tokens: int) -> list[tuple[Filler, int | None]]:
        ids = self._lane.ids
        fillers: list[tuple[Filler, int | None]] = [(Filler.MEAN, None), (Filler.REPEATED, ids[-1])]
        fillers += [(Filler.LOOKUP, token_id) for token_id in followers(ids, 1)]
        if self._layers is not None:
            self._layers.go_back(n_tokens - 1)
            fillers.append((Filler.LAYERS, self._layers.draft(ids, 1).ids[0]))
        return fillers

    def _attempt(self, filler: Filler, guessed_id: int | None, true_first: Tensor, true_second: Tensor) -> Attempt:
        model, cache, transformer = self._model, self._lane.cache, self._model.transformer
        n_past = cache.n_tokens
        with torch.inference_mode():
            newest = torch.tensor([self._lane.ids[n_past:]], device=transformer.device)
            x = torch.cat([transformer.embed(newest), self._embedding(guessed_id)])  # (2, d)
            with Stopwatch(model.device) as watch:
                logits = transformer.logits(through_cache(transformer, x, cache, n_past))  # (2, vocab)
        cache.truncate(n_past)
        first, second = usable(model, logits)
        away = difference(usable(model, true_second), second)
        return Attempt(
            filler=filler,
            guessed_id=guessed_id,
            second_id=best_going_on(model, second),
            likely=self._likely(second),
            logit_difference=away.logit,
            kl=away.kl,
            first_difference=difference(usable(model, true_first), first).logit,
            seconds=watch.seconds,
        )

    def _likely(self, logits: Tensor) -> tuple[Candidate, ...]:
        return candidates(logits, PLAIN, n_usable=self._model.tokenizer.vocab_size, count=N_LIKELY)

    def _embedding(self, token_id: int | None) -> Tensor:
        """A token's row of the input table, or the mean of all rows [1, d]."""
        transformer = self._model.transformer
        if token_id is not None:
            return transformer.embed(torch.tensor([[token_id]], device=transformer.device))
        if self._mean is None:
            rows = transformer.embedding[: self._model.tokenizer.vocab_size]
            self._mean = rows.mean(0, dtype=torch.float32).to(transformer.activation_dtype)
        return self._mean[None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
