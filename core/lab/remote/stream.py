"""One streamed answer: when each piece of it came, and the times that follow from that."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core.lab.remote.events import DONE, Usage, chunk_of, data_of
from core.lab.remote.exchange import Exchange
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.limits import Limits

_AFTER_END_S = 2.0
"""How long the usage is waited for behind the last token, and the end behind that."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A whole answer, on the clock of `time.perf_counter`.

    Attributes:
        sent_at: when the request was sent, over a connection that stood already.
        arrivals: when each piece of text came; at least one.
        ended_at: when the server said that it was the last one.
        usage: the server's count; None where it gives none.
    """

    sent_at: float
    arrivals: tuple[float, ...]
    ended_at: float
    usage: Usage | None

    @property
    def ttft_s(self) -> float:
        """TTFT: from the request to the first text. A first piece of several tokens comes when its last one is made."""
        return self.arrivals[0] - self.sent_at

    @property
    def tokens(self) -> int:
        """Tokens of the answer, by the server's count; pieces of text where it gives none."""
        return self.usage.completion_tokens if self.usage else len(self.arrivals)

    @property
    def tokens_a_piece(self) -> float:
        """Tokens that one piece of text stands for, on average: 1 where nothing is bundled."""
        return self.tokens / len(self.arrivals)

    @property
    def tpot_s(self) -> float | None:
        """TPOT, (last − first) ÷ (tokens − 1); None below two pieces.

        Where c pieces bring N tokens, the first brings N/c of them at once, so N − N/c come in the time between first
        and last. With a token a piece that is N − 1.
        """
        return self.step_s(self.arrivals[0], self.ended_at)

    def step_s(self, begin: float, end: float) -> float | None:
        """Seconds a token in a stretch of time, by the pieces that came within it; None below two of them.

        The end of the answer is the arrival of its last token, where the server says so in an event of its own.
        """
        within = [at for at in self.arrivals if begin <= at <= end]
        if len(within) < 2:
            return None
        last = (
            max(within[-1], self.ended_at) if within[-1] == self.arrivals[-1] and self.ended_at <= end else within[-1]
        )
        return (last - within[0]) / ((len(within) - 1) * self.tokens_a_piece)


def read_stream(exchange: Exchange, limits: Limits) -> Stream:
    """Reads the answer of a request that has been asked for as a stream. Raises Fault where it is not a whole one."""
    arrivals: list[float] = []
    ended_at, usage, is_done, n_events = 0.0, None, False, 0
    try:
        for data in data_of(exchange.lines()):
            now = time.perf_counter()
            n_events += 1
            if data.strip() == DONE:
                is_done = True
                break
            chunk = chunk_of(data)
            usage = chunk.usage or usage
            if chunk.has_text:
                arrivals.append(now)
                exchange.wait_for(Kind.SLOW_TOKEN, limits.between_tokens_s)
            if chunk.finish:
                ended_at = now
                exchange.wait_for(Kind.SLOW_TOKEN, _AFTER_END_S)
    except Fault as fault:
        # Whoever has said that it was the last token and then forgets to hang up has answered all the same.
        if not (ended_at and fault.kind in (Kind.SLOW_TOKEN, Kind.CUT)):
            raise
    if not n_events:
        raise Fault(Kind.NOT_STREAMED)
    if not (ended_at or is_done):
        raise Fault(Kind.CUT)
    if not arrivals or (usage and not usage.completion_tokens):
        raise Fault(Kind.EMPTY)
    return Stream(exchange.sent_at, tuple(arrivals), ended_at or arrivals[-1], usage)
