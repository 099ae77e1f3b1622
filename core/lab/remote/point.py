"""A point: what the streams of one batch say together, with everything that a reader should know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median, median_low

from core.lab.remote.faults import Fault
from core.lab.remote.metrics import KvUse
from core.lab.remote.plan import PointKey
from core.lab.remote.stream import Stream


class Note(StrEnum):
    """What is unusual about a point; each has a sentence."""

    PROMPT_GAP = "prompt_gap"  # no text was found with exactly the wanted number of tokens
    PROMPT_UNCOUNTED = "prompt_uncounted"  # the server counts nothing: a token a word is assumed
    NO_USAGE = "no_usage"  # of the stream: a token a piece of text is assumed
    BUNDLED = "bundled"  # pieces of several tokens
    ONE_PIECE = "one_piece"  # no time between tokens can be taken
    EARLY_END = "early_end"  # fewer tokens than asked for
    QUEUED = "queued"  # not all streams wrote at the same time: no step of the whole batch
    CACHED = "cached"  # a part of the prompts was not computed but found
    BUSY = "busy"  # others use the server too


_BUNDLED_FROM = 1.5
"""Tokens a piece, on average, from which on a point is marked; characters of several tokens make some of any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePoint:
    """One point as it was measured; seconds and tokens. Counts are one sequence's, the middle one of the batch.

    Attributes:
        decode_step_s: a token's time while all streams of the batch wrote, the middle one of them; None where that
            was too short to take it from.
        tpot_s: a token's time over the whole of each stream, TPOT; None where each came in one piece.
        ttft_s, ttft_last_s: to the first token: the middle stream's and the last one's.
        together: the time in which all streams wrote, as a share of the middle stream's.
        cached_tokens: prompt tokens that the server says it had; None where it does not say.
        kv_share, kv_tokens: of the server's cache in the middle of that time; None where it does not publish them.
        retries: how many times the point was begun again.
        fault: why there is nothing: the point was given up.
    """

    key: PointKey
    decode_step_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    ttft_last_s: float | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    pieces: int | None = None
    together: float | None = None
    cached_tokens: int | None = None
    kv_share: float | None = None
    kv_tokens: float | None = None
    retries: int = 0
    notes: tuple[Note, ...] = ()
    fault: Fault | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it need not be asked for again."""
        return self.fault is None


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which all streams of a batch write: from the last one's first token to the first one's last."""

    begin: float
    end: float

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> Window:
        """Of these streams; it ends before it begins where they do not overlap."""
        return cls(max(stream.arrivals[0] for stream in streams), min(stream.ended_at for stream in streams))

    def share(self, streams: Sequence[Stream]) -> float:
        """Its length against the middle stream's own, 0 to 1; 1 for one stream."""
        own = median(stream.ended_at - stream.arrivals[0] for stream in streams)
        return min(1.0, max(0.0, self.end - self.begin) / own) if own > 0 else float(len(streams) == 1)


def point_of(
    key: PointKey,
    streams: Sequence[Stream],
    *,
    wanted_prompt: int,
    counted_prompt: int | None,
    new_tokens: int,
    use: KvUse | None,
    use_before: KvUse | None,
    retries: int,
) -> RemotePoint:
    """What a batch's streams say.

    Args:
        wanted_prompt, counted_prompt: the prompts' length as it should be, and as a probe found it.
        use, use_before: the server's cache while all wrote, and before anything was sent.
    """
    window = Window.of(streams)
    steps = [stream.step_s(window.begin, window.end) for stream in streams]
    known_steps = [step for step in steps if step is not None]
    whole = [stream.tpot_s for stream in streams if stream.tpot_s is not None]
    usages = [stream.usage for stream in streams if stream.usage is not None]
    cached = [usage.cached_tokens for usage in usages if usage.cached_tokens is not None]
    prompt = median_low([usage.prompt_tokens for usage in usages]) if usages else counted_prompt
    tokens = median_low([stream.tokens for stream in streams])
    is_together = len(known_steps) == len(streams)
    found = {
        Note.PROMPT_GAP: prompt is not None and prompt != wanted_prompt,
        Note.PROMPT_UNCOUNTED: prompt is None,
        Note.NO_USAGE: len(usages) < len(streams),
        Note.BUNDLED: median(stream.tokens_a_piece for stream in streams) >= _BUNDLED_FROM,
        Note.ONE_PIECE: len(whole) < len(streams),
        Note.EARLY_END: bool(usages) and min(stream.tokens for stream in streams) < new_tokens,
        Note.QUEUED: len(streams) > 1 and len(whole) == len(streams) and not is_together,
        Note.CACHED: max(cached, default=0) > wanted_prompt // 10,
        Note.BUSY: bool(use_before and use_before.running) or bool(use and (use.running or 0) > len(streams)),
    }
    return RemotePoint(
        key=key,
        decode_step_s=median(known_steps) if is_together else None,
        tpot_s=median(whole) if whole else None,
        ttft_s=median(stream.ttft_s for stream in streams),
        ttft_last_s=max(stream.ttft_s for stream in streams),
        tokens=tokens,
        prompt_tokens=prompt,
        pieces=median_low([len(stream.arrivals) for stream in streams]),
        together=window.share(streams),
        cached_tokens=median_low(cached) if cached else None,
        kv_share=use.share if use else None,
        kv_tokens=use.tokens if use else None,
        retries=retries,
        notes=tuple(note for note, is_so in found.items() if is_so),
    )
