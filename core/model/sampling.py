"""From logits to the next token: what is filtered away, what is kept, and one draw from what is kept.

The order is the usual one: repetition penalty, temperature, top-k, top-p. The vocabulary is never sorted further than
somebody asks: a ranking is found from the top, and grows. On 49,152 logits a greedy choice costs tens of microseconds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from core.model.ranking import Ranking, Scores, TokenIds
from core.refusal import Refusal

Weights = npt.NDArray[np.float64]

# Below this the runner-up would need a logit within about 1e-4 of the best to be drawn once in 20,000 times.
GREEDY_BELOW = 1e-5
FIRST_LOOK = 64
LOOK_FURTHER = 16
SEED_LIMIT = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How the next token is chosen. The defaults are greedy: always the most likely token.

    `temperature` 0 is greedy; `top_k` 0 is off, and more than the vocabulary keeps everything; `top_p` 1 keeps
    everything and 0 only the best token; `repetition_penalty` 1 is off. Raises Refusal naming the field.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (_is_number(self.temperature) and self.temperature >= 0):
            raise Refusal("text.temperature", value=_shown(self.temperature))
        if not (_is_integer(self.top_k) and self.top_k >= 0):
            raise Refusal("text.top_k", value=_shown(self.top_k))
        if not (_is_number(self.top_p) and 0 <= self.top_p <= 1):
            raise Refusal("text.top_p", value=_shown(self.top_p))
        if not (_is_number(self.repetition_penalty) and 0.01 <= self.repetition_penalty <= 100):
            raise Refusal("text.repetition_penalty", value=_shown(self.repetition_penalty))
        if not (_is_integer(self.seed) and 0 <= self.seed < SEED_LIMIT):
            raise Refusal("text.seed", value=_shown(self.seed))

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_BELOW


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return repr(value)[:40]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible next token. `probability` is the model's own (raw logits, temperature 1); `probability_kept` is
    what it is drawn with after penalty, temperature and filters (0 when it is filtered away). `logit` is the model's,
    `score` the same after the repetition penalty."""

    token_id: int
    probability: float
    kept: bool
    probability_kept: float
    logit: float
    score: float


class Filtered:
    """The next-token distribution of one step, before and after the filters. Immutable to its users.

    `kept_count` tokens are kept; `kept_mass` is their share of the probability after penalty and temperature, and
    `kept_total` the sum of their exp((score − best_score) / temperature). These are worked out when it is made; the
    order of the kept tokens only as far as a draw or a list needs it. Made by `filter_probabilities`.
    """

    def __init__(self, raw: Scores, scores: Scores, config: SamplingConfig) -> None:
        """`raw`: the model's logits [usable]; `scores`: the same after the repetition penalty (or `raw` itself)."""
        self._raw, self._scores, self._config = raw, scores, config
        self._ranking = Ranking(scores)
        if config.is_greedy:  # needs no weights: its one token has all of it
            best = int(scores.argmax())
            self._kept: TokenIds | None = np.array([best])
            self.best_score = float(scores[best])
            self.kept_count, self.kept_mass, self.kept_total = 1, 1.0, 1.0
            return
        self.best_score = float(scores.max())
        self._weights = exponentials(scores, self.best_score, config.temperature)  # [usable] the best is 1
        total = float(self._weights.sum())
        unmasked = int(np.count_nonzero(scores > -np.inf))
        self.kept_count = self.top_k_then_top_p(unmasked, total)
        # [kept] best first; None where every token that is not masked is kept, and their order is not needed yet
        self._kept = self._ranking.first(self.kept_count) if self.kept_count < unmasked else None
        self.kept_total = total if self._kept is None else float(self._weights[self._kept].sum())
        self.kept_mass = self.kept_total / total

    def top_k_then_top_p(self, unmasked: int, total: float) -> int:
        """How many tokens stay: top-k, then top-p over what top-k leaves."""
        limit = min(self._config.top_k or unmasked, unmasked)
        if self._config.top_p >= 1:
            return limit
        if limit < unmasked:
            total = float(self._weights[self._ranking.first(limit)].sum())
        return self.nucleus(limit, total)

    def nucleus(self, limit: int, total: float) -> int:
        """How many of the best `limit` tokens reach top_p: the one that crosses is kept, an exact hit adds no more."""
        look = min(FIRST_LOOK, limit)
        while True:
            reached = np.cumsum(self._weights[self._ranking.first(look)]) / total
            if reached[-1] >= self._config.top_p or look == limit:
                return min(int(np.searchsorted(reached, self._config.top_p)) + 1, limit)
            look = min(look * LOOK_FURTHER, limit)

    def probability_kept(self, token_id: int) -> float:
        """The probability this token is drawn with; 0 when it is filtered away."""
        if not self.keeps(token_id):
            return 0.0
        return 1.0 if self._config.is_greedy else float(self._weights[token_id]) / self.kept_total

    @property
    def distribution(self) -> Weights:
        """`probability_kept` of all tokens at once, [usable]; it sums to 1."""
        if self._kept is None:
            return self._weights / self.kept_total
        kept = np.zeros(len(self._scores))
        kept[self._kept] = 1.0 if self._config.is_greedy else self._weights[self._kept] / self.kept_total
        return kept

    def keeps(self, token_id: int) -> bool:
        """Whether the filters keep this token."""
        if self._kept is None:
            return bool(self._scores[token_id] > -np.inf)
        return token_id in self._kept

    def candidates(self, count: int) -> tuple[Candidate, ...]:
        """The `count` most likely tokens by the model's own probability, best first, ties by lower id."""
        ranking = self._ranking if self._scores is self._raw else Ranking(self._raw)
        raw, scores = self._raw, self._scores
        return tuple(
            Candidate(i, self.probability(i), self.keeps(i), self.probability_kept(i), float(raw[i]), float(scores[i]))
            for i in ranking.first(count).tolist()
        )

    def probability(self, token_id: int) -> float:
        """The model's own probability of this token: its raw logits at temperature 1."""
        return float(self._model_weights[token_id]) / self.model_total

    @cached_property
    def model_total(self) -> float:
        """The sum of exp(logit − best logit) over all tokens: what the model's own probabilities are divided by."""
        return float(self._model_weights.sum())

    @cached_property
    def _model_weights(self) -> Weights:
        if self._scores is self._raw and self._config.temperature == 1.0:
            return self._weights
        return exponentials(self._raw, float(self._raw.max()), 1.0)

    def draw(self, u: float) -> int:
        """The token at `u` in [0, 1) of the kept probabilities laid end to end, most likely first."""
        if self._kept is not None and self.kept_count == 1:
            return int(self._kept[0])
        target = u * self.kept_total
        look = min(FIRST_LOOK, self.kept_count)
        while True:
            ids = self._ranking.first(look)
            reached = np.cumsum(self._weights[ids])
            place = int(np.searchsorted(reached, target, side="right"))
            if place < look:
                return int(ids[place])
            if look == self.kept_count:
                # Rounding left `target` at the very end: the last token that has any weight.
                return int(ids[np.searchsorted(reached, reached[-1])])
            look = min(look * LOOK_FURTHER, self.kept_count)

    def choose(self, n_tokens: int) -> int:
        """The next token at context length `n_tokens`. The same seed and length always give the same token."""
        return self.draw(uniform(self._config.seed, n_tokens))


def exponentials(scores: Scores, best: float, temperature: float) -> Weights:
    """exp((score − best) / temperature) in float64: the best is 1, so nothing overflows."""
    shifted = np.subtract(scores, best, dtype=np.float64)
    if temperature != 1.0:
        shifted /= temperature
    weights: Weights = np.exp(shifted, out=shifted)
    return weights


def uniform(seed: int, n_tokens: int, purpose: str = "") -> float:
    """A number in [0, 1) that depends on nothing but the seed and the context length.

    So stepping back and forward, alone or in a batch, draws the same token. 53 bits of a keyed hash. Draws at one
    length for another `purpose` (to draft, to accept) are independent of it.
    """
    digest = hashlib.blake2b(f"{seed}:{n_tokens}{purpose}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest, "big") >> 11) * 2.0**-53


def _usable_logits(logits: torch.Tensor, n_usable: int | None) -> Scores:
    """The logits [V] that belong to a token, [usable], on the CPU. Rows beyond the tokenizer are cut off (a model's
    output is often padded). Raises Refusal when no number among them can be used."""
    usable = logits.detach()[: logits.shape[0] if n_usable is None else n_usable].cpu()
    numbers: Scores = (usable.float() if usable.dtype == torch.bfloat16 else usable).numpy()
    if numbers.dtype == np.float16:
        numbers = numbers.astype(np.float32)
    if not len(numbers) or not math.isfinite(numbers.max()):  # max passes NaN on
        raise Refusal("text.no_usable_numbers")
    return numbers


def penalised(raw: Scores, config: SamplingConfig, seen_ids: Collection[int]) -> Scores:
    """The logits with every token seen so far made less likely: positive ones divided, negative ones multiplied."""
    if config.repetition_penalty == 1.0 or not seen_ids:
        return raw
    seen = np.fromiter(seen_ids, dtype=np.int64, count=len(seen_ids))
    seen = seen[(seen >= 0) & (seen < len(raw))]
    scores = raw.copy()
    values = scores[seen]
    scores[seen] = np.where(values > 0, values / config.repetition_penalty, values * config.repetition_penalty)
    return scores


def filter_probabilities(
    logits: torch.Tensor, config: SamplingConfig, seen_ids: Collection[int] = (), n_usable: int | None = None
) -> Filtered:
    """The distribution of the next token before and after the filters.

    `logits` [V]; `seen_ids`: prompt and generated tokens (for the repetition penalty); `n_usable`: ids at or beyond it
    have no token and are never candidates. Raises Refusal when the logits hold NaN, +inf, or nothing finite.
    """
    raw = _usable_logits(logits, n_usable)
    return Filtered(raw, penalised(raw, config, seen_ids), config)


def candidates(
    logits: torch.Tensor,
    config: SamplingConfig,
    seen_ids: Collection[int] = (),
    n_usable: int | None = None,
    count: int = 10,
) -> tuple[Candidate, ...]:
    """The `count` most likely next tokens, each with its probability before and after the filters."""
    return filter_probabilities(logits, config, seen_ids, n_usable).candidates(count)


def choose(
    logits: torch.Tensor,
    config: SamplingConfig,
    seen_ids: Collection[int] = (),
    n_usable: int | None = None,
    *,
    n_tokens: int,
) -> int:
    """The next token at context length `n_tokens`. Greedy looks for the best logit and computes no probability."""
    return filter_probabilities(logits, config, seen_ids, n_usable).choose(n_tokens)
