"""The record of a chat whose every turn was computed twice: anew, and behind the columns that the turn before left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Lanes(NamedTuple):
    """A figure of the turn computed anew, and of the one that kept its cache."""

    anew: float
    kept: float

    @property
    def ratio(self) -> float:
        """The kept one's, divided by the other's."""
        return self.kept / self.anew if self.anew else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn: its prompt, which is all that was said so far and the new message, and its answer.

    Attributes:
        n_tokens: positions of the prompt; n_cached: columns the turn before left; n_reused: of them, those that stand
            for the same tokens as the prompt begins with.
        positions: through the layers in the prefill; seconds: of it.
        flops: of the prefill, counted over the pairs that the mask leaves.
        kv_bytes: behind the prefill, by the tensors' own size.
        token_ids: of the answer, as both wrote it.
        logit_difference, kv_difference: the largest between both, behind the prefill.
    """

    n_tokens: int
    n_cached: int
    n_reused: int
    positions: Lanes
    seconds: Lanes
    flops: Lanes
    kv_bytes: Lanes
    kv_bytes_formula: int
    anew_ids: tuple[int, ...]
    kept_ids: tuple[int, ...]
    logit_difference: float
    kv_difference: float

    @property
    def has_same_tokens(self) -> bool:
        """Whether both wrote the same answer."""
        return self.anew_ids == self.kept_ids


class Case(StrEnum):
    """How the next prompt begins: as the chat went, with a sign more in its first message, with another system
    message."""

    AS_IT_WAS = "as_it_was"
    EDITED = "edited"
    SYSTEM = "system"


class Reuse(NamedTuple):
    """Of `n_cached` columns the first `n_reused` serve a prompt; behind them the cache has one token and the prompt
    another; both None where one of them ends there."""

    case: Case
    n_cached: int
    n_reused: int
    cached_id: int | None
    prompt_id: int | None


@dataclass(frozen=True, slots=True)
class ReusedResult:
    """All turns so far.

    Attributes:
        messages: what was said, turn by turn, those still to come included.
        in_chat: whether the chat goes through a template; it is one text that goes on, else.
        cases: how much of the last cache would serve which prompt; empty before everything is measured.
        n_cuts, n_same_cuts: the last answer, cut behind each of its tokens, was turned into text and into tokens again
            so many times, and so many times these were the same tokens.
    """

    messages: tuple[str, ...]
    in_chat: bool
    turns: tuple[Turn, ...]
    cases: tuple[Reuse, ...] = ()
    n_cuts: int = 0
    n_same_cuts: int = 0
    n_disturbed: int = 0

    @property
    def n_planned(self) -> int:
        """Turns there will be."""
        return len(self.messages)

    @property
    def later(self) -> tuple[Turn, ...]:
        """The turns that had something to reuse."""
        return self.turns[1:]

    @property
    def has_same_tokens(self) -> bool:
        """Whether every answer is the same both ways."""
        return all(turn.has_same_tokens for turn in self.turns)

    @property
    def largest_difference(self) -> float:
        """Of any logit behind any prefill."""
        return max(turn.logit_difference for turn in self.turns)

    @property
    def largest_kv_difference(self) -> float:
        """Of any cached number behind any prefill."""
        return max(turn.kv_difference for turn in self.turns)

    def of_later(self, name: str) -> Lanes:
        """A figure added up over the turns that had something to reuse."""
        lanes = [getattr(turn, name) for turn in self.later]
        return Lanes(sum(one.anew for one in lanes), sum(one.kept for one in lanes))
