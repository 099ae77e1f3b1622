"""Streams that are under way together for certain, however late the system lets one of their threads run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from core.lab.remote import sweep
from core.lab.remote.batch import stream_together
from core.lab.remote.exchange import Exchange
from core.lab.remote.faults import Kind
from core.lab.remote.server import Client, Server
from core.lab.remote.stream import Stream

PATIENCE_S = 20.0


def read_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the streams of a batch wait for each other behind their first piece and behind their third.

    So two pieces of each at least come while all write. Streams that are asked for in turn wait in vain.
    """
    wait_for = Exchange.wait_for

    def together(client: Client, server: Server, prompts: Sequence[str], n_new: int) -> list[Stream]:
        gate, n_read = threading.Barrier(len(prompts), timeout=PATIENCE_S), Counter[Exchange]()

        def wait_in_step(exchange: Exchange, kind: Kind, seconds: float) -> None:
            wait_for(exchange, kind, seconds)
            if kind is Kind.SLOW_TOKEN:
                n_read[exchange] += 1
                if n_read[exchange] in (1, 3):
                    gate.wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Exchange, "wait_for", wait_in_step)
            return stream_together(client, server, prompts, n_new)

    monkeypatch.setattr(sweep, "stream_together", together)
