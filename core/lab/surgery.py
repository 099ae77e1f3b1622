"""Surgery on a cache: a column edited, emptied or taken out, and what the steps behind it make of that.

The text is put into a cache, each edit is made on a copy, and decoding goes on from there twice: fed with the untouched
run's tokens, so that every step's logits can be compared, and fed with its own. All runs go through the same operators,
so that a difference of 0 is 0. Tokens are chosen greedily, and no end token ends a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.lab.cache_edits import recomputed, with_column_of, with_zeros, without
from core.lab.lane import Lane, best_going_on, cache_bytes, difference, through_cache, usable
from core.lab.surgery_records import Edit, EditKind, EditResult, LaterStep, SurgeryResult
from core.lab.timeline import most_positions
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.refusal import Refusal


class _Going:
    """A run that goes on behind a cache: fed with tokens at positions of their own, taken back by truncating."""

    def __init__(self, model: LanguageModel, cache: KVCache, position: int) -> None:
        self._model, self._cache, self._position, self._n_begin = model, cache, position, cache.n_tokens
        self.kv_bytes = cache.used_bytes

    def logits(self, step: int, token_id: int) -> Tensor:
        """Logits [usable] behind a token that is fed as the `step`-th."""
        model, transformer = self._model, self._model.transformer
        self._cache.truncate(self._n_begin + step)
        with torch.inference_mode():
            x = transformer.embed(torch.tensor([[token_id]], device=transformer.device))  # (1, d)
            hidden = through_cache(transformer, x, self._cache, self._position + step)
            return usable(model, transformer.logits(hidden)[0])


class _Patient:
    """One edit with its runs, which live while it is under way."""

    def __init__(self, edit: Edit, begin: int) -> None:
        self.edit, self.begin = edit, begin
        self.new_id: int | None = None
        self.forced: _Going | None = None
        self.free: _Going | None = None
        self.right: _Going | None = None
        self.kv_bytes = 0
        self.steps: list[LaterStep] = []


class Surgery:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self, model: LanguageModel, ids: Sequence[int], edits: Sequence[Edit], *, n_written: int = 0, n_after: int = 16
    ) -> None:
        """`ids`: a text, a run's prompt and output for example; the model first writes `n_written` tokens more.

        Raises Refusal for a text that cannot be fed or leaves no room for the steps, and for columns it does not have.
        """
        model.check_prompt(ids)
        n = len(ids) + n_written
        most = min(model.config.context_limit, most_positions(model.device)) - max(0, n_after - 1)
        if not 2 <= n <= most or n_after < 1:
            raise Refusal("techniques.surgery_no_room", n_tokens=n, most=most)
        self._model, self._n_given, self._n_written, self._n_after = model, len(ids), n_written, n_after
        self._lane = Lane(model.transformer, model.device, ids)
        self._patients = [_Patient(edit, self._checked(edit, n - 1)) for edit in edits]
        self._untouched: _Going | None = None
        self._logits: list[Tensor] = []  # (usable) of each step of the untouched run
        self._written: list[int] = []

    def _checked(self, edit: Edit, n_columns: int) -> int:
        begin = edit.begin + n_columns if edit.begin < 0 else edit.begin
        replaces = edit.kind in (EditKind.REPLACE, EditKind.RECOMPUTE)
        # At least one column stays, so that there is something to attend to.
        fits = begin >= 0 and 1 <= edit.n_columns < n_columns and begin + edit.n_columns <= n_columns
        if not fits or (replaces and edit.n_columns > 1):
            raise Refusal("techniques.surgery_no_such_column", begin=edit.begin, n=edit.n_columns, held=n_columns)
        if edit.token_id is not None and not 0 <= edit.token_id < self._model.tokenizer.vocab_size:
            raise Refusal("techniques.surgery_no_such_token", token_id=edit.token_id)
        return begin

    @property
    def result(self) -> SurgeryResult:
        """What has been measured by now."""
        ids = tuple(self._lane.ids)
        edits = tuple(
            EditResult(made.edit, made.begin, ids[made.begin], made.new_id, made.kv_bytes, tuple(made.steps))
            for made in self._patients
            if made.steps
        )
        kv = 0 if self._untouched is None else self._untouched.kv_bytes
        return SurgeryResult(ids, self._n_given, self._n_after, tuple(self._written), kv, edits)

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot: the text's cache, the untouched run's, and three of the edit under way."""
        n = self._n_given + self._n_written + self._n_after
        logits = self._n_after * self._model.config.vocab_size * 4
        return Measurement("surgery", self.points(), n_bytes=5 * cache_bytes(self._model, n) + logits)

    def points(self) -> list[Callable[[], None]]:
        """The text, the untouched run, then every edit with its steps. A point may be done again."""
        points: list[Callable[[], None]] = list(self._lane.fill_points())
        points += [partial(self._write, number) for number in range(self._n_written)]
        points += [self._begin, *(partial(self._go_on, step) for step in range(self._n_after))]
        for patient in self._patients:
            points.append(partial(self._operate, patient))
            points += [partial(self._follow, patient, step) for step in range(self._n_after)]
        return points

    def _write(self, number: int) -> None:
        self._lane.go_back(self._n_given + number)
        self._lane.ids.append(best_going_on(self._model, self._lane.next_logits()))

    def _begin(self) -> None:
        n = len(self._lane.ids) - 1
        self._untouched = _Going(self._model, self._lane.cache.first(n), n)

    def _go_on(self, step: int) -> None:
        assert self._untouched is not None
        del self._logits[step:], self._written[step:]
        self._logits.append(self._untouched.logits(step, self._fed(step, self._written)))
        self._written.append(best_going_on(self._model, self._logits[-1]))

    def _fed(self, step: int, written: Sequence[int]) -> int:
        return written[step - 1] if step else self._lane.ids[-1]

    def _operate(self, patient: _Patient) -> None:
        """The edit, on copies; those of the edit before go."""
        for other in self._patients:
            other.forced = other.free = other.right = None
        edit, begin, cache, ids = patient.edit, patient.begin, self._lane.cache, self._lane.ids
        end, n, transformer = begin + edit.n_columns, cache.n_tokens, self._model.transformer
        patient.steps.clear()
        if edit.kind in (EditKind.REPLACE, EditKind.RECOMPUTE):
            patient.new_id = self._not_taken(begin) if edit.token_id is None else edit.token_id
            right = recomputed(transformer, cache, begin, [patient.new_id, *ids[end:n]])
            edited = right
            if edit.kind is EditKind.REPLACE:
                edited = with_column_of(cache, right, begin)
                patient.right = _Going(self._model, right, n)
        elif edit.kind is EditKind.ZERO:
            edited = with_zeros(cache, begin, end)
        else:
            edited = without(cache, begin, end)
        position = edited.n_tokens if edit.kind is EditKind.DROP_AND_SHIFT else n
        patient.kv_bytes = edited.used_bytes
        patient.forced = _Going(self._model, edited, position)
        patient.free = _Going(self._model, edited.first(edited.n_tokens), position)

    def _not_taken(self, begin: int) -> int:
        """The best token for a place but the one that stands there; at the first place, which nothing predicts, the
        newest token of the text."""
        ids, model = self._lane.ids, self._model
        if begin == 0:
            return ids[-1]
        before = _Going(model, self._lane.cache.first(begin - 1), begin - 1)
        scores = before.logits(0, ids[begin - 1]).clone()
        scores[ids[begin]] = float("-inf")
        return best_going_on(model, scores)

    def _follow(self, patient: _Patient, step: int) -> None:
        """A step of both runs behind the edit."""
        assert patient.forced is not None and patient.free is not None
        model, untouched = self._model, self._logits[step]
        del patient.steps[step:]
        fed = self._fed(step, self._written)
        logits = patient.forced.logits(step, fed)
        right = None if patient.right is None else difference(patient.right.logits(step, fed), logits)
        own = self._fed(step, [done.free_id for done in patient.steps])
        patient.steps.append(
            LaterStep(
                n_tokens=len(self._lane.ids) + step,
                untouched_id=self._written[step],
                edited_id=best_going_on(model, logits),
                from_untouched=difference(untouched, logits),
                from_recomputed=right,
                free_id=best_going_on(model, patient.free.logits(step, own)),
            )
        )
