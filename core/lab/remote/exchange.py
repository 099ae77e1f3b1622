"""One request and its answer over a connection of its own, which another thread may end at any moment.

Nothing is followed elsewhere: a redirect is a fault, and a proxy of the environment is not asked. The server's
certificate is checked as the system does.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

from core.lab.remote.address import Address, Key
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.limits import MOST_ANSWER_BYTES, MOST_EVENT_BYTES, Limits
from core.lab.remote.watch import Watch

_MOST_ERROR_BYTES = 2**16
_PIECE_BYTES = 2**16
_BY_STATUS = {
    401: Kind.UNAUTHORISED,
    403: Kind.UNAUTHORISED,
    404: Kind.NOT_FOUND,
    405: Kind.NOT_FOUND,
    408: Kind.SERVER_ERROR,
    429: Kind.RATE_LIMITED,
}


class Exchange:
    """Opened, asked once, read, closed; a context manager. Every method raises Fault."""

    def __init__(self, address: Address, key: Key, limits: Limits, watch: Watch) -> None:
        self._address, self._key, self._limits, self._watch = address, key, limits, watch
        self._socket: socket.socket | None = None
        self._connection = http.client.HTTPConnection(address.host, address.port)
        self._answer: http.client.HTTPResponse | None = None
        self._ended: Kind | None = None
        self.sent_at = 0.0
        self.due_at, self.due_kind = math.inf, Kind.SLOW_ANSWER

    def __enter__(self) -> Self:
        self._watch.check()
        self._watch.add(self)
        try:
            self._connect()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.remove(self)
        self._connection.close()
        if self._answer is not None:
            self._answer.close()
        if self._socket is not None:
            self._socket.close()

    def hang_up(self, kind: Kind) -> None:
        """Ends it from another thread: whoever reads or writes wakes up and raises a Fault of this kind."""
        self._ended = self._ended or kind
        connected = self._socket
        if connected is not None:
            with suppress(OSError):
                # The plain socket's own: an encrypted one's would take its state from under whoever reads.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def wait_for(self, kind: Kind, seconds: float) -> None:
        """From now on: hung up as `kind` after so long, unless this is called again."""
        self.due_kind, self.due_at = kind, time.monotonic() + seconds

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Sends the request and waits for the head of an answer with status 200.

        `sent_at` is then the moment before its first byte, on the clock of `time.perf_counter`.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept-Encoding": "identity", "User-Agent": "token-by-token", **self._key.headers()}
        if data is not None:
            headers["Content-Type"] = "application/json"
        self.wait_for(Kind.SLOW_ANSWER, self._limits.first_token_s)
        with self._faults():
            self.sent_at = time.perf_counter()
            self._connection.request(method, path, body=data, headers=headers)
            self._answer = self._connection.getresponse()
        if self._answer.status != 200:
            raise self._refused(self._answer)

    def lines(self) -> Iterator[bytes]:
        """The answer's lines as they come, without their ends; ends where the server ends, wherever that is."""
        assert self._answer is not None
        n_bytes = 0
        while True:
            with self._faults():
                line = self._answer.readline(MOST_EVENT_BYTES + 1)
            n_bytes += len(line)
            if len(line) > MOST_EVENT_BYTES or n_bytes > MOST_ANSWER_BYTES:
                raise Fault(Kind.TOO_LARGE)
            if not line:
                self._raise_if_ended()
                return
            yield line.rstrip(b"\r\n")

    def whole(self, most_bytes: int = MOST_ANSWER_BYTES) -> bytes:
        """The answer to its end. Raises Fault for one that is longer, or that ends before its length."""
        assert self._answer is not None
        pieces, n_bytes = [], 0
        while True:
            with self._faults():
                piece = self._answer.read(_PIECE_BYTES)
            self._raise_if_ended()
            if not piece:
                break
            pieces.append(piece)
            n_bytes += len(piece)
            if n_bytes > most_bytes:
                raise Fault(Kind.TOO_LARGE)
        if self._answer.length:
            raise Fault(Kind.CUT)
        return b"".join(pieces)

    def _connect(self) -> None:
        address = self._address
        self.wait_for(Kind.UNREACHABLE, self._limits.connect_s)
        with self._faults(broken=Kind.UNREACHABLE, garbled=Kind.UNREACHABLE):
            connected = socket.create_connection((address.host, address.port), timeout=self._limits.connect_s)
            self._socket = connected
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.scheme == "https":
                context = ssl.create_default_context()
                secure = context.wrap_socket(connected, server_hostname=address.host, do_handshake_on_connect=False)
                self._socket = secure
                secure.do_handshake()
            self._socket.settimeout(None)
        self._connection.sock = self._socket
        self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise Fault(self._ended)

    @contextmanager
    def _faults(self, *, broken: Kind = Kind.CUT, garbled: Kind = Kind.NOT_HTTP) -> Iterator[None]:
        """What the network and the protocol raise, as a Fault; being hung up comes before what it causes."""
        try:
            yield
        except ssl.SSLCertVerificationError:
            raise Fault(self._ended or Kind.UNTRUSTED) from None
        except (http.client.IncompleteRead, http.client.RemoteDisconnected, OSError):
            raise Fault(self._ended or broken) from None
        except (http.client.HTTPException, ValueError, AttributeError):
            # ValueError: names that are none. AttributeError: http.client on an answer that was hung up meanwhile.
            raise Fault(self._ended or garbled) from None

    def _refused(self, answer: http.client.HTTPResponse) -> Fault:
        """The fault of an answer that is not 200, with what it says."""
        status = answer.status
        if 300 <= status < 400:
            return Fault(Kind.REDIRECTED, status=status)
        with suppress(Fault), self._faults():
            said = self._key.without(_message(answer.read(_MOST_ERROR_BYTES)))
            kind = _BY_STATUS.get(status, Kind.SERVER_ERROR if status >= 500 else Kind.REJECTED)
            return Fault(kind, status=status, retry_after_s=_seconds(answer.getheader("Retry-After")), said=said)
        return Fault(self._ended or Kind.CUT, status=status)


def _message(data: bytes) -> str:
    """What an error answer says in words, in any of the forms that servers use; empty where it is not JSON."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    for _ in range(3):
        if isinstance(found, dict):
            found = next((found[name] for name in ("error", "message", "detail", "msg") if found.get(name)), "")
        elif isinstance(found, list):
            found = found[0] if found else ""
    return found if isinstance(found, str) else ""


def _seconds(text: str | None) -> float | None:
    """A Retry-After header, in seconds or as a date; None where there is none, or none that can be read."""
    if not text:
        return None
    if text.strip().isdecimal() and len(text.strip()) <= 9:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
