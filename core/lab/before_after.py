"""A model before and after a change, point by point: a held text read by both, then the same prompt continued by both.

Both take the same positions one right after the other, so that what disturbs the machine meets both alike; who goes
first alternates, for the first one finds the processor's caches filled with something else. A point works on copies of
the caches that the point before it left, so it may be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import torch

from core.engine.exclusive import Measurement, Point
from core.estimate.kv import kv_bytes
from core.lab.cached_lane import Lane
from core.lab.quality import HeldPosition, Quality, Texts, compared, texts
from core.model.device import Device, Stopwatch
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, choose
from core.refusal import Refusal

GREEDY = SamplingConfig(temperature=0.0)
HELD_CHUNK = 16
"""Positions of a held text in one point: both distributions over the whole vocabulary are there at once."""
PROMPT_CHUNK = 64
"""Positions of a prompt in one point, through both lanes."""


def most_held(device: Device) -> int:
    """Positions of a held text: three seconds or so of SmolLM2 on one CPU core."""
    return 256 if device.kind == "cpu" else 2048


class Both(NamedTuple):
    """A figure before and after."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After, divided by before."""
        return self.after / self.before if self.before else 0.0


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """One token of both texts: the positions its query saw, the model's seconds, bytes cached, and what was chosen."""

    n_tokens: int
    seconds: Both
    kv_bytes: Both
    before_id: int
    after_id: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What has been measured by now. The first token comes from the prefill, the others from decode steps.

    `held_language`: of the text whose quality this is, "zh" or "en"; `n_disturbed` points stayed disturbed.
    """

    prompt_ids: tuple[int, ...]
    quality: Quality
    tokens: tuple[WrittenToken, ...]
    texts: Texts
    held_language: str = ""
    n_disturbed: int = 0

    @property
    def n_tokens(self) -> int:
        """Positions in the caches behind the newest token's pass."""
        return self.tokens[-1].n_tokens if self.tokens else 0

    @property
    def kv_bytes(self) -> Both:
        """Of both caches at that length, by the tensors' own size."""
        return self.tokens[-1].kv_bytes if self.tokens else Both(0, 0)

    @property
    def decode_seconds(self) -> Both:
        """A decode step's seconds, the median of all."""
        steps = self.tokens[1:]
        if not steps:
            return Both(0.0, 0.0)
        return Both(median(step.seconds.before for step in steps), median(step.seconds.after for step in steps))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model before and after is to do: continue a prompt by `n_new` tokens, and read a held text.

    `held_ids` has one token more than there are positions to read (`core.lab.quality.held_ids`); `held_language` is
    the text's.
    """

    prompt_ids: Sequence[int]
    n_new: int
    held_ids: Sequence[int]
    held_language: str = ""

    @property
    def most_tokens(self) -> int:
        """The longest sequence of the two."""
        return max(len(self.prompt_ids) + self.n_new, len(self.held_ids))


class _Writing(NamedTuple):
    """How far both texts are: lanes and ids, the prompt's first."""

    lanes: tuple[Lane, Lane]
    ids: tuple[tuple[int, ...], tuple[int, ...]]


class BeforeAfter:
    """`lanes` makes a fresh pair, before and after; it is asked when the first point runs."""

    def __init__(self, model: LanguageModel, lanes: Callable[[], tuple[Lane, Lane]], asked: Asked) -> None:
        """`model`: before the change. Raises Refusal for a prompt that cannot be fed or leaves no room."""
        model.check_prompt(asked.prompt_ids)
        if asked.n_new < 0 or len(asked.prompt_ids) + asked.n_new - 1 > model.config.context_limit:
            raise Refusal("techniques.quality_no_room", limit=model.config.context_limit)
        self._model, self._new_lanes = model, lanes
        self._prompt, self._n_new, self._held = tuple(asked.prompt_ids), asked.n_new, list(asked.held_ids)
        self._most, self._held_language, self._n_disturbed = asked.most_tokens, asked.held_language, 0
        self._reading: dict[int, tuple[Lane, Lane]] = {}  # positions read → the lanes behind them
        self._writing: dict[int, _Writing] = {}  # passes done → how far it is
        self._read: list[HeldPosition] = []
        self._written: list[WrittenToken] = []

    @property
    def result(self) -> Compared:
        """What has been measured by now."""
        written = tuple(self._written)
        before, after = [token.before_id for token in written], [token.after_id for token in written]
        both = texts(self._model, self._prompt, before, after)
        quality = Quality(tuple(self._read))
        return Compared(self._prompt, quality, written, both, self._held_language, self._n_disturbed)

    def points(self) -> list[Callable[[], None]]:
        """The held text in chunks, the prompt in chunks, then a token at a time."""
        n, n_prompt = len(self._held) - 1, len(self._prompt)
        reading = pairwise([*range(0, n, HELD_CHUNK), n]) if n > 0 else ()
        passes = pairwise([*range(0, n_prompt, PROMPT_CHUNK), *range(n_prompt, n_prompt + self._n_new)])
        writing = [partial(self._write, number, *ends) for number, ends in enumerate(passes)]
        return [*(partial(self._read_chunk, *ends) for ends in reading), *writing]

    def measurement(self, name: str, first: Sequence[Callable[[], None]], n_bytes: int) -> Measurement:
        """All points for the exclusive slot, behind those that make what is compared.

        `n_bytes`: of what these make; caches and logits are added. When it ends, all of it goes but the result.
        """
        model = self._model
        caches = 4 * kv_bytes(model.shape, n_tokens=self._most, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)
        logits = 6 * 8 * HELD_CHUNK * model.config.vocab_size  # two pairs of fp64 rows, and what is made of them
        n_bytes = int(n_bytes + caches) + logits
        measurement = Measurement(name, [*first, *self.points()], n_bytes=n_bytes, on_point=self._heard)
        measurement.future.add_done_callback(lambda _: self.let_go())
        return measurement

    def let_go(self) -> None:
        """Forgets lanes and what made them; the result stays."""
        self._reading, self._writing = {}, {}
        self._new_lanes = _no_lanes

    def _heard(self, _: int, point: Point) -> None:
        self._n_disturbed += bool(point.disturbed)

    def _read_chunk(self, begin: int, end: int) -> None:
        lanes = self._copies(self._reading.get(begin))
        with torch.inference_mode():
            before, after = (lane.model.transformer.logits(lane.hidden(self._held[begin:end])) for lane in lanes)
            n_usable = lanes[0].model.tokenizer.vocab_size
            found = compared(before, after, self._held[begin + 1 : end + 1], begin + 1, n_usable)
        self._read[begin:] = found
        self._reading = {begin: self._reading[begin], end: lanes} if begin else {end: lanes}

    def _copies(self, lanes: tuple[Lane, Lane] | None) -> tuple[Lane, Lane]:
        if lanes is None:
            return self._new_lanes()
        return lanes[0].copied(), lanes[1].copied()

    def _write(self, number: int, begin: int, end: int) -> None:
        """One pass of each lane over its own tokens; behind the prompt's last one, a token is chosen."""
        done = self._writing.get(number)
        lanes = self._copies(done and done.lanes)
        ids = done.ids if done else (self._prompt, self._prompt)
        turns = (0, 1) if number % 2 == 0 else (1, 0)
        passes = {turn: self._passed(lanes[turn], ids[turn], begin, end) for turn in turns}
        if end >= len(self._prompt):
            before, after = passes[0], passes[1]
            token = WrittenToken(
                n_tokens=end,
                seconds=Both(before[1], after[1]),
                kv_bytes=Both(lanes[0].kv_bytes, lanes[1].kv_bytes),
                before_id=before[0],
                after_id=after[0],
            )
            self._written[end - len(self._prompt) :] = [token]
            ids = ((*ids[0], token.before_id), (*ids[1], token.after_id))
        kept = {number: done} if done else {}
        self._writing = {**kept, number + 1: _Writing(lanes, ids)}

    def _passed(self, lane: Lane, ids: Sequence[int], begin: int, end: int) -> tuple[int, float]:
        """The token chosen behind positions begin … end − 1, and the model's seconds."""
        model = lane.model
        with torch.inference_mode():
            with Stopwatch(model.device) as watch:
                logits = model.transformer.logits(lane.hidden(ids[begin:end])[-1])
            return choose(logits, GREEDY, (), model.tokenizer.vocab_size, n_tokens=end), watch.seconds


def _no_lanes() -> tuple[Lane, Lane]:
    raise ValueError("this comparison has ended")
