"""A chat of a few turns, each computed twice: the whole prompt anew, and only what is new behind the kept cache.

A column of the cache depends on all tokens up to its own, so it serves another prompt exactly as far as both begin with
the same tokens. The answers make the conversation go on as text, as in any chat: the text goes through the template and
is cut into tokens again, and where these are others than were written, the cache serves only up to there. Both ways
take each piece one right after the other. Tokens are chosen greedily, and no end token ends an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from core.engine.exclusive import Measurement, Point
from core.engine.prefix import chunk_for, n_common
from core.estimate.flops import head_flops, layers_flops
from core.estimate.kv import kv_bytes
from core.lab.lane import (
    best_going_on,
    cache_bytes,
    columns_difference,
    difference,
    fill,
    logits_of_newest,
    usable,
)
from core.lab.reused_records import Case, Lanes, Reuse, ReusedResult, Turn
from core.lab.timeline import most_positions
from core.model.device import Stopwatch
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.model.text.chat_template import Message
from core.refusal import Refusal

N_NEW = 12
ROOM = 32
"""Tokens that a template may put around a message."""


def chat_ids(model: LanguageModel, said: Sequence[Message]) -> list[int]:
    """A conversation, its last message included, as the model reads it: by its chat template, or as one text where it
    has none, each message on a line of its own and each answer right behind what it goes on from.

    Raises Refusal for what the template refuses or the context does not hold.
    """
    *history, last = said
    if model.chat_template is not None:
        return model.prompt_ids(last.content, history=history)
    text = "".join(message.content + ("\n" if message.role != "user" else "") for message in history)
    return model.prompt_ids(text + last.content)


@dataclass
class _Way:
    """One of both: its cache, the logits [usable] behind its newest token, its answer, seconds of its passes."""

    cache: KVCache
    start: int = 0  # columns it begins the turn with
    logits: Tensor | None = None
    answer: list[int] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)  # first position → seconds


class ReusedPrefix:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self, model: LanguageModel, messages: Sequence[str], n_new: int = N_NEW, system: str = "", first: str = ""
    ) -> None:
        """`messages`: what the visitor says turn by turn. What the last cache would be worth is asked for a chat with
        the first message changed to `first`, and for one with the system message `system`.

        Raises Refusal for a first message that cannot be fed, and for a chat that does not find room.
        """
        self._model, self._messages, self._n_new = model, tuple(messages), n_new
        self._system, self._first = system, first
        ids = chat_ids(model, [Message("user", messages[0])])
        later = sum(len(model.tokenizer.encode(message)) + ROOM for message in messages[1:])
        self._most = len(ids) + later + len(messages) * n_new
        limit = min(model.config.context_limit, most_positions(model.device))
        if self._most > limit:
            raise Refusal("techniques.prompt_too_long", n_tokens=len(ids), most=limit - self._most + len(ids))
        self._said: list[tuple[Message, ...]] = [(Message("user", messages[0]),)]  # by each turn
        self._ids: list[list[int]] = [ids]
        self._cached: list[list[int]] = [[]]  # what the columns stand for as each turn begins
        self._ways = {name: _Way(model.transformer.new_cache()) for name in Lanes._fields}
        self._after: list[tuple[float, float, Lanes]] = []  # differences and bytes behind each prefill
        self._turns: list[Turn] = []
        self._cases: tuple[Reuse, ...] = ()
        self._same_cuts: tuple[bool, ...] = ()
        self._n_disturbed = 0

    @property
    def result(self) -> ReusedResult:
        """What has been measured by now."""
        return ReusedResult(
            messages=self._messages,
            in_chat=self._model.chat_template is not None,
            turns=tuple(self._turns),
            cases=self._cases,
            n_cuts=len(self._same_cuts),
            n_same_cuts=sum(self._same_cuts),
            n_disturbed=self._n_disturbed,
        )

    def measurement(self) -> Measurement:
        """All of it for the exclusive slot."""

        def heard(_: int, point: Point) -> None:
            self._n_disturbed += bool(point.disturbed)

        n_bytes = 2 * cache_bytes(self._model, self._most)
        return Measurement("reused prefix", self.points(), n_bytes=n_bytes, on_point=heard)

    def points(self) -> list[Callable[[], None]]:
        """Turn by turn the prompt's passes, as many as it can have, and the answer's steps. Any may be done again."""
        points: list[Callable[[], None]] = []
        for turn in range(len(self._messages)):
            begins = range(0, self._most, chunk_for(self._model.device))
            points += [partial(self._prefill, turn, name, begin) for begin in begins for name in self._ways]
            points.append(partial(self._look, turn))
            points += [partial(self._write, turn, number) for number in range(1, self._n_new)]
            points.append(partial(self._close, turn))
        return [*points, self._reckon]

    def _prefill(self, turn: int, name: str, offset: int) -> None:
        """A chunk of the prompt one way, `offset` positions behind what is reused; nothing beyond the prompt's end."""
        model, way, ids = self._model, self._ways[name], self._ids[turn]
        if offset == 0:
            # The last position is computed in any case: its logits are wanted, which no cache holds.
            way.start = min(n_common(self._cached[turn], ids), len(ids) - 1) if name == "kept" else 0
            way.seconds.clear()
        begin = way.start + offset
        if begin >= len(ids):
            return
        way.cache.truncate(begin)
        end = begin + chunk_for(model.device)
        with Stopwatch(model.device) as watch:
            if end < len(ids):
                fill(model.transformer, ids[begin:end], way.cache)
            else:
                way.logits = usable(model, logits_of_newest(model.transformer, ids[begin:], way.cache))
        way.seconds[begin] = watch.seconds

    def _look(self, turn: int) -> None:
        """Compares both behind the prefill, and takes the answers' first tokens."""
        anew, kept = self._ways.values()
        assert anew.logits is not None and kept.logits is not None
        off = columns_difference(anew.cache, kept.cache)
        del self._after[turn:]
        n_bytes = Lanes(anew.cache.used_bytes, kept.cache.used_bytes)
        self._after.append((difference(anew.logits, kept.logits).logit, off, n_bytes))
        for way in (anew, kept):
            assert way.logits is not None
            way.answer = [best_going_on(self._model, way.logits)]

    def _write(self, turn: int, number: int) -> None:
        """The answers' token of that number, both ways."""
        n = len(self._ids[turn])
        for way in self._ways.values():
            way.cache.truncate(n + number - 1)
            del way.answer[number:]
            newest = logits_of_newest(self._model.transformer, way.answer[-1:], way.cache)
            way.answer.append(best_going_on(self._model, newest))

    def _close(self, turn: int) -> None:
        """The turn's record, and the next turn's prompt: what was said so far is text again."""
        model, shape, ids = self._model, self._model.shape, self._ids[turn]
        anew, kept = self._ways.values()
        logit_off, column_off, n_bytes = self._after[turn]
        del self._turns[turn:], self._ids[turn + 1 :], self._cached[turn + 1 :], self._said[turn + 1 :]

        def flops(start: int) -> int:
            return int(layers_flops(shape, len(ids) - start, start, pairs="causal") + head_flops(shape))

        self._turns.append(
            Turn(
                n_tokens=len(ids),
                n_cached=len(self._cached[turn]),
                n_reused=kept.start,
                positions=Lanes(len(ids), len(ids) - kept.start),
                seconds=Lanes(sum(anew.seconds.values()), sum(kept.seconds.values())),
                flops=Lanes(flops(0), flops(kept.start)),
                kv_bytes=n_bytes,
                kv_bytes_formula=int(kv_bytes(shape, n_tokens=len(ids), dtypes=model.kv_dtypes)),
                anew_ids=tuple(anew.answer),
                kept_ids=tuple(kept.answer),
                logit_difference=logit_off,
                kv_difference=column_off,
            )
        )
        self._cached.append([*ids, *kept.answer[:-1]])
        if turn + 1 < len(self._messages):
            answered = (*self._said[turn], self._answer(turn, kept.answer))
            self._said.append((*answered, Message("user", self._messages[turn + 1])))
            self._ids.append(chat_ids(model, self._said[-1]))

    def _answer(self, turn: int, answer: Sequence[int]) -> Message:
        return Message("assistant", self._model.tokenizer.decode(answer, after=self._ids[turn]))

    def _reckon(self) -> None:
        """What the last turn's cache is worth for a chat that goes on, and for one that begins otherwise."""
        cached, turn, answer = self._cached[-1], len(self._ids) - 1, self._ways["kept"].answer
        next_one = Message("user", self._messages[-1])
        as_it_was = (*self._said[-1], self._answer(turn, answer), next_one)
        chats = {
            Case.AS_IT_WAS: as_it_was,
            Case.EDITED: (Message("user", self._first), *as_it_was[1:]),
            Case.SYSTEM: (Message("system", self._system), *as_it_was),
        }
        self._cases = tuple(
            _reuse(case, cached, ids) for case, said in chats.items() if (ids := self._ids_of(said)) is not None
        )
        cuts, n = [], len(self._ids[turn])
        for end in range(1, len(answer) + 1):
            ids = self._ids_of((*self._said[-1], self._answer(turn, answer[:end]), next_one)) or []
            cuts.append(ids[n : n + end] == answer[:end])
        self._same_cuts = tuple(cuts)

    def _ids_of(self, said: Sequence[Message]) -> list[int] | None:
        """None for what the template refuses (a system message, say) or the context does not hold."""
        try:
            return chat_ids(self._model, said)
        except Refusal:
            return None


def _reuse(case: Case, cached: Sequence[int], ids: Sequence[int]) -> Reuse:
    n = n_common(cached, ids)
    ends = n == min(len(cached), len(ids))
    return Reuse(case, len(cached), n, None if ends else cached[n], None if ends else ids[n])
