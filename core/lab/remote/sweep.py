"""The sweep itself: point after point, repeated where that may help, ended where nothing would."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from core.lab.remote.address import Address, Key
from core.lab.remote.batch import stream_together
from core.lab.remote.faults import Fault
from core.lab.remote.interface import Api
from core.lab.remote.limits import Limits
from core.lab.remote.metrics import KvUse, Poller, asked_kv_use
from core.lab.remote.patience import Pausing, patiently
from core.lab.remote.plan import PointKey, RemotePlan, check_plan
from core.lab.remote.point import RemotePoint, Window, point_of
from core.lab.remote.prompts import Ruler, Sized, prompt_of
from core.lab.remote.server import Client, Server, count, greeted, served_model
from core.lab.remote.stream import Stream
from core.lab.remote.watch import Watch
from core.refusal import Refusal

MOST_GIVEN_UP = 3
"""Points given up one after another for what should have passed, and the sweep ends: the server is not well."""

Answer = TypeVar("Answer")


def _quiet(pausing: Pausing) -> None:
    """Nobody listens."""


@dataclass
class RemoteSweep:
    """A sweep of one server: a context manager, entered once.

    Attributes:
        wanted_model, api: as the server should be asked; found out where they are left empty.
        seed: of the prompts' words. Another one each time, so that no cache of an earlier sweep answers.
        on_pause: hears of every repetition before it is waited for.
        cancel: set from any thread, ends the sweep within moments.
    """

    address: Address
    key: Key
    plan: RemotePlan
    limits: Limits = field(default_factory=Limits)
    wanted_model: str = ""
    api: Api | None = None
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    on_pause: Callable[[Pausing], None] = _quiet
    cancel: threading.Event = field(default_factory=threading.Event)
    _sized: dict[int, Sized] = field(default_factory=dict, init=False)
    _ruler: Ruler = field(default_factory=Ruler, init=False)
    _n_requests: int = field(default=0, init=False)
    _has_metrics: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Raises Refusal for a plan beyond the limits, before anything is sent."""
        check_plan(self.plan, self.limits)

    def __enter__(self) -> Self:
        self._watch = Watch(self.limits.total_s, self.cancel).__enter__()
        self._client = Client(self.address, self.key, self.limits, self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)

    def greet(self) -> Server:
        """Finds out how the server wants to be asked, and whether it publishes figures of its cache.

        Raises:
            Fault: it does not answer, or no way of asking works.
            Refusal: it serves several models and none was named.
        """
        model, _ = self._patiently(lambda: served_model(self._client, self.wanted_model))
        server, _ = self._patiently(lambda: greeted(self._client, model, self.api))
        self._has_metrics = asked_kv_use(self._client) is not None
        return server

    def points(self, server: Server, done: Set[PointKey] = frozenset()) -> Iterator[RemotePoint]:
        """Every point that is not in `done`, as it is finished or given up.

        Raises:
            Fault: no further point would fare better: the server is gone, time is up, the sweep was cancelled.
            Refusal: the requests that were allowed are used up.
        """
        left = [key for key in self.plan.points() if key not in done]
        if left:
            self._warm_up(server)
        n_given_up = 0
        for key in left:
            point = self._point(server, key)
            yield point
            n_given_up = n_given_up + 1 if point.fault is not None and point.fault.is_passing else 0
            if point.fault is not None and n_given_up == MOST_GIVEN_UP:
                raise point.fault

    def _warm_up(self, server: Server) -> None:
        """One stream that is not recorded: what a server does at its first answer belongs to no point."""
        with suppress(Fault):
            n_words = self._prompt_size(server, min(self.plan.contexts)).n_words
            self._streams(server, n_words, 1)
        self._watch.check()

    def _point(self, server: Server, key: PointKey) -> RemotePoint:
        """Measures a point. Raises Fault where the sweep is to end; any other is the point's own."""
        try:
            sized, _ = self._patiently(lambda: self._prompt_size(server, key.context))
            (streams, use, before), retries = self._patiently(lambda: self._batch(server, sized.n_words, key.batch))
        except Fault as fault:
            if fault.is_final:
                raise
            return RemotePoint(key=key, fault=fault, retries=self.limits.retries if fault.is_passing else 0)
        return point_of(
            key,
            streams,
            wanted_prompt=self.plan.prompt_tokens(key.context),
            counted_prompt=sized.n_tokens,
            new_tokens=self.plan.new_tokens,
            use=use,
            use_before=before,
            retries=retries,
        )

    def _prompt_size(self, server: Server, context: int) -> Sized:
        """How long the prompts of a context are, probed once."""
        if context not in self._sized:

            def counted(n_words: int) -> int | None:
                usage = count(self._client, server, self._prompts(n_words, 1)[0])
                return usage.prompt_tokens if usage else None

            self._sized[context] = self._ruler.sized(self.plan.prompt_tokens(context), counted)
        return self._sized[context]

    def _batch(self, server: Server, n_words: int, n: int) -> tuple[list[Stream], KvUse | None, KvUse | None]:
        """The streams of a point; the server's cache while all wrote, and before."""
        if not self._has_metrics:
            return self._streams(server, n_words, n), None, None
        before = asked_kv_use(self._client)
        with Poller(self._client) as poller:
            streams = self._streams(server, n_words, n)
        window = Window.of(streams)
        return streams, poller.nearest(window.begin, window.end), before

    def _streams(self, server: Server, n_words: int, n: int) -> list[Stream]:
        return stream_together(self._client, server, self._prompts(n_words, n), self.plan.new_tokens)

    def _prompts(self, n_words: int, n: int) -> list[str]:
        """Prompts for as many requests, which are counted. Raises Refusal where that would be too many."""
        if self._n_requests + n > self.limits.requests:
            raise Refusal("endpoint.requests_used_up", most=f"{self.limits.requests:,}")
        self._n_requests += n
        return [prompt_of(n_words, self.seed + self._n_requests - i) for i in range(n)]

    def _patiently(self, ask: Callable[[], Answer]) -> tuple[Answer, int]:
        return patiently(ask, self.limits, self._watch, self.on_pause)
