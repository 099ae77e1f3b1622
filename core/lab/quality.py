"""How good a model still is after a change, measured against itself before: perplexity, logits, and the text it writes.

Perplexity and divergence are taken on a held text: every position sees the text before it and says how likely the next
token is, before and after. Nothing is sampled, so the two see the same past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from core.model.load import TINY, TINY_FOLDER, LanguageModel
from core.refusal import Refusal

HELD_TEXTS = Path(__file__).resolve().parents[2] / "assets" / "held_texts"
LEAST_HELD = 2
"""A token, and the one that it is asked for."""


@dataclass(frozen=True, slots=True)
class HeldPosition:
    """One position of a held text.

    Attributes:
        n_tokens: positions that its query sees, itself included.
        nll_before, nll_after: −ln of the probability given to the token that really comes next, in nats.
        divergence: KL(before ‖ after) of the two distributions of the next token, in nats.
        same_best: whether both find the same token likeliest.
    """

    n_tokens: int
    nll_before: float
    nll_after: float
    divergence: float
    same_best: bool


@dataclass(frozen=True, slots=True)
class Quality:
    """A held text, as far as it was read."""

    positions: tuple[HeldPosition, ...]

    @property
    def perplexity_before(self) -> float:
        """exp of the mean −ln p: as if so many tokens were equally likely at each position."""
        return _perplexity([position.nll_before for position in self.positions])

    @property
    def perplexity_after(self) -> float:
        """The same after the change."""
        return _perplexity([position.nll_after for position in self.positions])

    @property
    def perplexity_ratio(self) -> float:
        """After, divided by before: 1 where nothing was lost."""
        return self.perplexity_after / self.perplexity_before

    @property
    def mean_divergence(self) -> float:
        """Of all positions, in nats."""
        n = len(self.positions)
        return math.fsum(position.divergence for position in self.positions) / n if n else 0.0

    @property
    def max_divergence(self) -> float:
        """At the worst position, in nats."""
        return max((position.divergence for position in self.positions), default=0.0)

    @property
    def agreement(self) -> float:
        """The share of positions where both find the same token likeliest."""
        n = len(self.positions)
        return sum(position.same_best for position in self.positions) / n if n else 1.0


@dataclass(frozen=True, slots=True)
class Texts:
    """What was written greedily behind the same prompt, before the change and after; an end token ends a text."""

    before_ids: tuple[int, ...]
    after_ids: tuple[int, ...]
    before: str
    after: str

    @property
    def first_difference(self) -> int | None:
        """The first token that differs, from 0; None where both are equal, or one is the beginning of the other."""
        pairs = enumerate(zip(self.before_ids, self.after_ids, strict=False))
        return next((index for index, (before, after) in pairs if before != after), None)


def held_text(language: str) -> str:
    """The held text of that language ("zh", "en"): written for this, and in no model's training text."""
    return (HELD_TEXTS / f"{language}.txt").read_text(encoding="utf-8").strip()


def knows_text(model: LanguageModel) -> bool:
    """Whether `text_for` gives this model a text it was trained on."""
    return model.name == TINY


def text_for(model: LanguageModel, language: str) -> str:
    """A text on which a change of this model shows, in a language that it speaks.

    The tiny model knows by heart what it has read and is lost in everything else: a new text is as improbable before a
    change as behind it, so its own is taken. What is measured then is how much it forgets.
    """
    if not knows_text(model):
        return held_text(language)
    passages = (TINY_FOLDER / "text" / f"{language}_everyday.txt").read_text(encoding="utf-8").split("\n\n")
    return ("" if language == "zh" else " ").join(passage.strip() for passage in passages)


def held_ids(model: LanguageModel, text: str, most: int) -> list[int]:
    """A text as the model reads it, cut to `most` positions and one to be asked for.

    Raises Refusal for a text of fewer than two tokens.
    """
    ids = model.tokenizer.encode(text)
    if len(ids) < LEAST_HELD:
        raise Refusal("techniques.quality_text_short", least=LEAST_HELD)
    return ids[: min(most, model.config.context_limit) + 1]


def compared(before: Tensor, after: Tensor, next_ids: Sequence[int], n_seen: int, n_usable: int) -> list[HeldPosition]:
    """Logits [n, vocab] of the same n positions before and after, the first of which sees `n_seen` positions.

    `next_ids`: the tokens that really follow; ids from `n_usable` on have no token and take no part. In fp64.
    """
    p, q = (logits[:, :n_usable].double().log_softmax(-1) for logits in (before, after))
    divergence = (p.exp() * (p - q)).sum(-1).clamp_min(0)  # rounding may leave it a hair below
    asked = torch.tensor(next_ids, device=before.device)[:, None]
    columns = (-p.gather(1, asked)[:, 0], -q.gather(1, asked)[:, 0], divergence, p.argmax(-1) == q.argmax(-1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [HeldPosition(n_seen + index, *row) for index, row in enumerate(rows)]


def texts(model: LanguageModel, prompt_ids: Sequence[int], before: Sequence[int], after: Sequence[int]) -> Texts:
    """The tokens of both as texts, each up to its end token."""
    ended = [_until_end(ids, model.end_token_ids) for ids in (before, after)]
    decoded = [model.tokenizer.decode(list(ids), after=tuple(prompt_ids)) for ids in ended]
    return Texts(ended[0], ended[1], decoded[0], decoded[1])


def _until_end(ids: Sequence[int], end_token_ids: frozenset[int]) -> tuple[int, ...]:
    end = next((index for index, token_id in enumerate(ids) if token_id in end_token_ids), len(ids))
    return tuple(ids[: end + 1])


def _perplexity(nlls: Sequence[float]) -> float:
    return math.exp(math.fsum(nlls) / len(nlls)) if nlls else 1.0
