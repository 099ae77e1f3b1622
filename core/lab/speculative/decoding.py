"""One sequence decoded speculatively: draft, check all of it in one pass, keep what stays, take the cache back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.estimate.flops import head_flops, layers_flops
from core.lab.lane import Lane, logits_behind
from core.lab.speculative.acceptance import judge
from core.lab.speculative.drafting import Drafter
from core.lab.speculative.records import SpeculativePass
from core.model.device import Stopwatch
from core.model.load import LanguageModel
from core.model.sampling import Filtered, SamplingConfig, filter_probabilities


class Standing(NamedTuple):
    """Tokens of the text, and positions that the drafter's own cache holds of it."""

    n_tokens: int
    n_drafter: int


class SpeculativeDecoder:
    """A text that grows by whole passes. `lane` holds its ids and the model's cache, which must be filled first."""

    def __init__(
        self, model: LanguageModel, ids: Sequence[int], drafter: Drafter, gamma: int, sampling: SamplingConfig
    ) -> None:
        self.lane = Lane(model.transformer, model.device, ids)
        self._model, self._drafter, self._gamma, self._sampling = model, drafter, gamma, sampling

    def step(self, most_new: int) -> SpeculativePass:
        """A draft and the pass that checks it, for at most `most_new` tokens.

        The γ + 1 positions of the pass are the newest token and the draft. Behind it the cache keeps the columns of
        what was accepted; those of refused tokens are cut off, and so is the drafter's memory of them.
        """
        model, lane, n_tokens = self._model, self.lane, len(self.lane.ids)
        room = model.config.context_limit - n_tokens  # positions that a draft may take behind the newest token
        with Stopwatch(model.device) as drafting:
            draft = self._drafter.draft(lane.ids, max(0, min(self._gamma, most_new - 1, room)))
        with Stopwatch(model.device) as verifying:
            n_past, checked = lane.cache.n_tokens, [lane.ids[-1], *draft.ids]
            logits = logits_behind(model.transformer, checked, lane.cache)  # (γ + 1, vocab)

            def target_at(place: int) -> Filtered:
                penalised = self._sampling.repetition_penalty != 1
                seen = {*lane.ids, *draft.ids[:place]} if penalised else ()
                return filter_probabilities(logits[place], self._sampling, seen, model.tokenizer.vocab_size)

            verdict = judge(draft, target_at, self._sampling.seed, n_tokens)
            new_ids = self._up_to_end([*draft.ids[: verdict.n_accepted], verdict.own_id])
            lane.ids.extend(new_ids)
            lane.cache.truncate(len(lane.ids) - 1)
            self._drafter.go_back(len(lane.ids) - 1)
        n_new, shape = len(checked), model.shape
        return SpeculativePass(
            n_tokens=n_tokens,
            drafted_ids=draft.ids,
            n_accepted=verdict.n_accepted,
            own_id=verdict.own_id,
            token_ids=tuple(new_ids),
            draft_seconds=drafting.seconds,
            verify_seconds=verifying.seconds,
            draft_flops=draft.flops,
            verify_flops=int(layers_flops(shape, n_new, n_past) + head_flops(shape, n_new)),
        )

    @property
    def standing(self) -> Standing:
        """Where it is, to come back to."""
        return Standing(len(self.lane.ids), self._drafter.n_held)

    def go_back(self, standing: Standing) -> None:
        """Takes text, cache and drafter back to where they were."""
        self.lane.go_back(standing.n_tokens)
        self._drafter.go_back(standing.n_drafter)

    def _up_to_end(self, ids: list[int]) -> list[int]:
        ends = (place for place, token_id in enumerate(ids) if token_id in self._model.end_token_ids)
        return ids[: next(ends, len(ids)) + 1]
