"""Prompts of a wanted length in the server's own tokens, each of other words, so that no cached prefix answers it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"),
    *("state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week"),
    *("company", "system", "program", "question", "work", "number", "night", "point", "home", "water", "room"),
    *("mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job"),
    *("word", "business", "issue", "side", "kind", "head", "house", "service", "friend", "father", "power"),
    *("hour", "game", "line", "end", "member", "law", "car", "city", "community", "name"),
)
"""Plain words, most of them one token in the vocabularies of today."""
MOST_PROBES = 6


def prompt_of(n_words: int, seed: int) -> str:
    """`n_words` words in an order of their own, each behind a blank.

    Prompts of one length have the same words in another order, and a tokenizer that splits text at blanks makes
    equally many tokens of them.
    """
    words = [WORDS[i % len(WORDS)] for i in range(n_words)]
    random.Random(seed).shuffle(words)
    return "".join(f" {word}" for word in words)


@dataclass(frozen=True, slots=True)
class Sized:
    """A length in words, and what the server counts for it; None where it does not say."""

    n_words: int
    n_tokens: int | None


@dataclass(slots=True)
class Ruler:
    """How long a text has to be for a number of tokens, learned from what the server counted before."""

    counted: dict[int, int] = field(default_factory=dict)  # words → tokens

    def guess(self, n_tokens: int) -> int:
        """Words for so many tokens, on the line through the two counts nearest by; a token a word at first."""
        near = sorted(self.counted.items(), key=lambda count: abs(count[1] - n_tokens))[:2]
        if not near:
            return n_tokens
        (words, tokens), slope = near[0], 1.0
        if len(near) == 2 and near[1][1] != tokens and near[1][0] != words:
            slope = (near[1][1] - tokens) / (near[1][0] - words)
        elif words:
            slope = max(1, round(tokens / words))  # what is over is the template's
        return max(1, words + round((n_tokens - tokens) / max(slope, 0.05)))

    def sized(self, n_tokens: int, count: Callable[[int], int | None]) -> Sized:
        """The length that the server counts as `n_tokens`, or comes nearest, in at most MOST_PROBES probes.

        `count` asks the server what a prompt of so many words is to it.
        """
        tried: list[Sized] = []
        for _ in range(MOST_PROBES):
            n_words = self.guess(n_tokens)
            is_known = n_words in self.counted
            found = self.counted[n_words] if is_known else count(n_words)
            if found is None:
                return Sized(n_words, None)
            self.counted[n_words] = found
            tried.append(Sized(n_words, found))
            if found == n_tokens or is_known:
                break
        return min(tried, key=lambda sized: abs((sized.n_tokens or 0) - n_tokens))
