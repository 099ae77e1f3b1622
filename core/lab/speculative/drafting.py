"""Who proposes the next tokens: a look into the text so far, or the model's own first layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

from core.estimate.flops import head_flops, layers_flops
from core.estimate.shape import shape_of
from core.lab.lane import Lane
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, Weights, filter_probabilities, uniform
from core.model.transformer import Transformer
from core.refusal import Refusal

LONGEST_NGRAM = 3
DRAFT = ":draft"
"""The purpose of a draft's draws: they must not be those that accept it, or that replace it."""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Tokens proposed to follow a text.

    `distributions` has for each the probabilities [usable] it was drawn from; None where it was not drawn but certain.
    `flops` were computed for it.
    """

    ids: tuple[int, ...]
    distributions: tuple[Weights | None, ...]
    flops: int = 0


class Drafter(Protocol):
    """What proposes tokens."""

    name: str

    @property
    def n_held(self) -> int:
        """Positions of the text that its own cache holds."""
        ...

    def fill_points(self) -> list[Callable[[], None]]:
        """What it does with the prompt before the first draft; any of these may be done again."""
        ...

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        """Up to `most` tokens to follow `ids`."""
        ...

    def go_back(self, n_tokens: int) -> None:
        """Forgets whatever lies behind the first `n_tokens` positions of the text."""
        ...


class PromptLookup:
    """Drafts by looking up: where the last tokens stood before, what followed them there.

    The longest n-gram counts, of it the latest place. Nothing is computed; where the text has nothing of the kind,
    there is no draft. (Saxena, "Prompt Lookup Decoding", 2023.)
    """

    name = "lookup"
    n_held = 0

    def fill_points(self) -> list[Callable[[], None]]:
        return []

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        found = tuple(followers(ids, most))
        return Draft(found, (None,) * len(found))

    def go_back(self, n_tokens: int) -> None:
        """It remembers nothing."""


def followers(ids: Sequence[int], most: int) -> Sequence[int]:
    """What followed the latest earlier place of the longest n-gram that ends the text: up to `most` tokens."""
    for length in range(min(LONGEST_NGRAM, len(ids) - 1), 0, -1):
        tail = list(ids[-length:])
        for begin in range(len(ids) - length - 1, -1, -1):
            if list(ids[begin : begin + length]) == tail:
                return ids[begin + length : begin + length + most]
    return []


class FirstLayers:
    """Drafts with the model's own first layers, its last norm and its head: a smaller model without further weights.

    It keeps a cache of its own, though its columns are those of the whole model's first layers. It samples as the model
    does (same filters), from its own distribution.
    """

    name = "layers"

    def __init__(self, model: LanguageModel, ids: Sequence[int], n_layers: int, sampling: SamplingConfig) -> None:
        """Raises Refusal unless `n_layers` is from 1 to one less than the model has."""
        if not 1 <= n_layers < model.config.n_layers:
            raise Refusal("techniques.speculative_layers", n_layers=n_layers, most=model.config.n_layers - 1)
        self.n_layers = n_layers
        self._lane = Lane(first_layers(model.transformer, n_layers), model.device, ids)
        self._sampling, self._n_usable = sampling, model.tokenizer.vocab_size
        self._shape = shape_of(self._lane.transformer.config)

    @property
    def n_held(self) -> int:
        return self._lane.cache.n_tokens

    @property
    def kv_used_bytes(self) -> int:
        """Bytes of the columns in its own cache."""
        return self._lane.cache.used_bytes

    def fill_points(self) -> list[Callable[[], None]]:
        return self._lane.fill_points()

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        lane, flops = self._lane, 0
        distributions: list[Weights | None] = []
        lane.ids = list(ids)
        for drawn in range(most):
            n_past, n_tokens = lane.cache.n_tokens, len(ids) + drawn
            logits = lane.next_logits()
            seen = set(lane.ids) if self._sampling.repetition_penalty != 1 else ()
            filtered = filter_probabilities(logits, self._sampling, seen, self._n_usable)
            distributions.append(None if self._sampling.is_greedy else filtered.distribution)
            lane.ids.append(filtered.draw(uniform(self._sampling.seed, n_tokens, DRAFT)))
            # The head is asked for all positions of a pass, which are two where the last draft was accepted whole.
            n_new = n_tokens - n_past
            flops += int(layers_flops(self._shape, n_new, n_past) + head_flops(self._shape, n_new))
        return Draft(tuple(lane.ids[len(ids) :]), tuple(distributions), flops)

    def go_back(self, n_tokens: int) -> None:
        self._lane.cache.truncate(min(self._lane.cache.n_tokens, n_tokens))


def first_layers(transformer: Transformer, n_layers: int) -> Transformer:
    """A model of the first layers alone, with the same norm and head behind them; every tensor is shared."""
    shorter = copy(transformer)
    shorter.config = replace(transformer.config, n_layers=n_layers)
    shorter.layers = transformer.layers[:n_layers]
    return shorter
