"""What speculative decoding is known by: a record a pass, and what all of them come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.estimate.speculative import break_even_cost, speedup, tokens_per_pass

LEAST_PASS_RATIO = 0.95
"""A pass over more positions does all that one over fewer does, so it cannot be shorter: a ratio below 1 is noise, and
one below this is more noise than what is reckoned from it bears."""


@dataclass(frozen=True, slots=True)
class SpeculativePass:
    """A draft, and one pass of the model over the newest token and all of the draft.

    Attributes:
        n_tokens: prompt and output before it.
        drafted_ids: the draft; empty where there was none, and the pass was a plain decode step.
        n_accepted: how many of these stay, from the front.
        own_id: what the model put behind them: in the place of a refused token, or one token more.
        token_ids: what the text gained: what was accepted and `own_id`, up to an end token.
        draft_seconds, verify_seconds: to draft; the pass, the head and the choosing.
        draft_flops, verify_flops: the matrix products of both.
    """

    n_tokens: int
    drafted_ids: tuple[int, ...]
    n_accepted: int
    own_id: int
    token_ids: tuple[int, ...]
    draft_seconds: float
    verify_seconds: float
    draft_flops: int
    verify_flops: int

    @property
    def is_corrected(self) -> bool:
        """Whether `own_id` stands in the place of a refused token."""
        return self.n_accepted < len(self.drafted_ids)

    @property
    def n_checked(self) -> int:
        """Drafted tokens on which something was decided: those behind a refused one were not looked at."""
        return self.n_accepted + self.is_corrected


@dataclass(frozen=True, slots=True)
class PlainStep:
    """One token decoded plainly behind the same text: its seconds, FLOP, and what plain decoding chooses there."""

    seconds: float
    flops: int
    token_id: int


@dataclass(frozen=True, slots=True)
class PassTime:
    """The median seconds of a pass over so many new positions, the head included for each of them, and its FLOP;
    `is_disturbed` where other programs used the processor meanwhile.
    """

    n_positions: int
    seconds: float
    flops: int
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """The i-th place of a draft: how often a token there was checked, and how often it stayed."""

    n_checked: int
    n_accepted: int

    @property
    def rate(self) -> float | None:
        """The share that stayed; None where nothing was checked."""
        return self.n_accepted / self.n_checked if self.n_checked else None


@dataclass(frozen=True, slots=True)
class SpeculativeResult:
    """Speculative decoding beside plain decoding, as far as it came.

    Attributes:
        drafter: "lookup" or "layers"; `draft_layers` how many layers draft, 0 for a lookup.
        gamma: the longest draft.
        plain: one step a token of the text, fed with the very tokens that the passes gave.
        pass_times: passes over 1 … γ + 1 positions behind the prompt.
        n_disturbed: points that stayed disturbed by other programs.
    """

    n_prompt: int
    n_planned: int
    gamma: int
    drafter: str
    draft_layers: int
    is_greedy: bool
    passes: tuple[SpeculativePass, ...]
    plain: tuple[PlainStep, ...]
    pass_times: tuple[PassTime, ...]
    n_disturbed: int = 0

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The text that was written."""
        return tuple(token_id for done in self.passes for token_id in done.token_ids)

    @property
    def is_same_text(self) -> bool:
        """Whether plain decoding chooses these very tokens; what must hold of greedy decoding, and of no other."""
        return self.token_ids == tuple(step.token_id for step in self.plain)

    @property
    def places(self) -> tuple[Place, ...]:
        """How a draft's first, second, … γ-th token fared. Were acceptances independent, all rates would be α."""
        return tuple(
            Place(sum(done.n_checked > i for done in self.passes), sum(done.n_accepted > i for done in self.passes))
            for i in range(self.gamma)
        )

    @property
    def alpha(self) -> float | None:
        """α: of all drafted tokens that were checked, the share that stayed. None where nothing was drafted."""
        return _ratio((done.n_accepted for done in self.passes), (done.n_checked for done in self.passes))

    @property
    def n_without_draft(self) -> int:
        """Passes for which nothing was drafted."""
        return sum(not done.drafted_ids for done in self.passes)

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens of the text a pass, measured."""
        return _ratio((len(done.token_ids) for done in self.passes), (1 for _ in self.passes))

    @property
    def tokens_per_pass_formula(self) -> float | None:
        """(1 − α^(γ+1)) / (1 − α) at the measured α: as if all drafts were γ long, and acceptances independent."""
        return None if self.alpha is None else tokens_per_pass(self.alpha, self.gamma)

    @property
    def seconds(self) -> float:
        """Of all drafts and passes."""
        return sum(done.draft_seconds + done.verify_seconds for done in self.passes)

    @property
    def draft_seconds(self) -> float:
        """Of all drafts."""
        return sum(done.draft_seconds for done in self.passes)

    @property
    def plain_seconds(self) -> float:
        """Of plain decoding, for the same tokens."""
        return sum(step.seconds for step in self.plain)

    @property
    def flops(self) -> int:
        """Of all drafts and passes."""
        return sum(done.draft_flops + done.verify_flops for done in self.passes)

    @property
    def plain_flops(self) -> int:
        """Of plain decoding, for the same tokens."""
        return sum(step.flops for step in self.plain)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as plain decoding, measured: below 1 it was a loss."""
        return self.plain_seconds / self.seconds if self.seconds else None

    @property
    def cost_ratio(self) -> float | None:
        """c: seconds to draft one token over those of a plain step."""
        n_drafted = sum(len(done.drafted_ids) for done in self.passes)
        if not (n_drafted and self.plain_seconds):
            return None
        return self.draft_seconds / n_drafted / (self.plain_seconds / len(self.plain))

    @property
    def pass_ratio(self) -> float | None:
        """Seconds of a pass over γ + 1 positions over those of one position: 1 where weights are the bound."""
        times = {time.n_positions: time.seconds for time in self.pass_times}
        return times[self.gamma + 1] / times[1] if self.gamma + 1 in times else None

    @property
    def last_position_ratio(self) -> float | None:
        """Seconds of a pass over γ + 1 positions over those of γ: what one position more costs."""
        times = {time.n_positions: time.seconds for time in self.pass_times}
        return times[self.gamma + 1] / times[self.gamma] if self.gamma + 1 in times else None

    @property
    def usable_pass_ratio(self) -> float | None:
        """The pass ratio, where it is one: None where a pass stayed disturbed, or more positions took less time."""
        ends = [time for time in self.pass_times if time.n_positions in (1, self.gamma + 1)]
        if self.pass_ratio is None or any(time.is_disturbed for time in ends):
            return None
        return self.pass_ratio if self.pass_ratio >= LEAST_PASS_RATIO else None

    @property
    def speedup_formula(self) -> float | None:
        """What the formula makes of the measured α, c and pass ratio; None where one of them is not known."""
        if self.alpha is None or self.cost_ratio is None or self.usable_pass_ratio is None:
            return None
        return speedup(self.alpha, self.gamma, self.cost_ratio, self.usable_pass_ratio)

    @property
    def break_even_cost(self) -> float | None:
        """The c at which drafting would neither gain nor lose; below 0 not even free drafts would pay."""
        if self.alpha is None or self.usable_pass_ratio is None:
            return None
        return break_even_cost(self.alpha, self.gamma, self.usable_pass_ratio)


def _ratio(parts: Iterable[int], wholes: Iterable[int]) -> float | None:
    whole = sum(wholes)
    return sum(parts) / whole if whole else None
