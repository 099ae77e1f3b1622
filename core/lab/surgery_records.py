"""What is done to a cache on purpose, and what the steps behind it make of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.lab.lane import Difference


class EditKind(StrEnum):
    """What is done.

    REPLACE: the column is recomputed for another token, the later ones stay as they were: stale.
    RECOMPUTE: the same, and every later column is computed anew: the right way to edit a text.
    ZERO: keys and values become 0; a query still gives such a column weight, for its score is 0 and not −∞.
    DROP: the columns go, all others keep their positions.
    DROP_AND_SHIFT: the columns go, and further positions are counted by what is left: the newest query's distance to
    every later column is one short for each of them.
    """

    REPLACE = "replace"
    RECOMPUTE = "recompute"
    ZERO = "zero"
    DROP = "drop"
    DROP_AND_SHIFT = "drop_and_shift"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of `n_columns` columns from position `begin` on; negative: from the end of the cache.

    `token_id`: what REPLACE and RECOMPUTE, which are of one column, put there; None for the best token that was not
    taken there.
    """

    kind: EditKind
    begin: int
    n_columns: int = 1
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class LaterStep:
    """One step behind the edit, beside the same step of the untouched run, both fed with the untouched run's tokens.

    Attributes:
        n_tokens: positions of the text, the newest included.
        untouched_id, edited_id: what each chooses.
        from_untouched: how far the logits are from the untouched run's.
        from_recomputed: how far a stale cache's are from those of the rightly recomputed one; None for other edits.
        free_id: what the edited run writes here when it is fed with its own tokens.
    """

    n_tokens: int
    untouched_id: int
    edited_id: int
    from_untouched: Difference
    from_recomputed: Difference | None
    free_id: int

    @property
    def is_changed(self) -> bool:
        """Whether another token is chosen."""
        return self.edited_id != self.untouched_id


@dataclass(frozen=True, slots=True)
class EditResult:
    """What became of one edit. `begin` counts from 0; `old_id` stood there, `new_id` does now (None: no token does)."""

    edit: Edit
    begin: int
    old_id: int
    new_id: int | None
    kv_bytes: int
    steps: tuple[LaterStep, ...]

    @property
    def n_changed(self) -> int:
        """Steps in which another token is chosen behind the same text."""
        return sum(step.is_changed for step in self.steps)

    @property
    def largest(self) -> Difference:
        """The largest differences from the untouched run in any step."""
        return Difference(
            max((step.from_untouched.logit for step in self.steps), default=0.0),
            max((step.from_untouched.kl for step in self.steps), default=0.0),
        )

    @property
    def free_ids(self) -> tuple[int, ...]:
        """What the edited run wrote."""
        return tuple(step.free_id for step in self.steps)


@dataclass(frozen=True, slots=True)
class SurgeryResult:
    """All edits so far.

    Attributes:
        ids: the text whose columns are in the cache, and the newest token behind it.
        n_given: how many of these were given; the model wrote the others.
        untouched_ids: how the untouched run goes on.
        kv_bytes: of the untouched cache before the steps.
    """

    ids: tuple[int, ...]
    n_given: int
    n_after: int
    untouched_ids: tuple[int, ...]
    kv_bytes: int
    edits: tuple[EditResult, ...]
