"""Several streams at once: connected first, sent together, all of them or none."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from core.lab.remote.exchange import Exchange
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.server import Client, Server
from core.lab.remote.stream import Stream, read_stream


def stream_together(client: Client, server: Server, prompts: Sequence[str], n_new: int) -> list[Stream]:
    """The answers to all prompts, asked for at the same moment over connections that stand already.

    Raises:
        Fault: one of them failed; the others have then been hung up.
    """
    batch = _Batch(client, server, n_new, len(prompts))
    with ThreadPoolExecutor(len(prompts), thread_name_prefix="endpoint-stream") as pool:
        answers = list(pool.map(batch.one, prompts))
    if batch.fault is not None:
        raise batch.fault
    return [answer for answer in answers if answer is not None]


class _Batch:
    """The requests of one point, and the first fault that any of them met."""

    def __init__(self, client: Client, server: Server, n_new: int, n_requests: int) -> None:
        self._client, self._server, self._n_new = client, server, n_new
        self._gate = threading.Barrier(n_requests)
        self._lock = threading.Lock()
        self._open: set[Exchange] = set()
        self.fault: Fault | None = None

    def one(self, prompt: str) -> Stream | None:
        """One stream from its connection to its end; None where it or another failed."""
        try:
            with self._client.exchange() as exchange:
                with self._lock:
                    self._open.add(exchange)
                self._gate.wait()
                body = self._server.body(prompt, self._n_new, stream=True)
                exchange.ask("POST", self._client.address.of(self._server.path), body)
                return read_stream(exchange, self._client.limits)
        except threading.BrokenBarrierError:
            return None
        except Fault as fault:
            self._fail(fault)
            return None
        except BaseException:
            self._gate.abort()  # nobody waits for one that will not come
            raise

    def _fail(self, fault: Fault) -> None:
        with self._lock:
            if self.fault is not None:
                return
            self.fault = fault
            self._gate.abort()
            for exchange in self._open:
                exchange.hang_up(Kind.CANCELLED)
