"""The stage's stream over HTTP: one kept connection a visitor, frames as they come. As cheap as a client can be."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import suppress
from urllib.parse import urlencode, urlsplit

import httptools

VISIT_HEADER = "X-TBT-Visit"
READ_BYTES = 65_536


class Stream:
    """A connection that asks for steps. It is opened by the first question and kept for the next ones."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._host, self._port = place.hostname or "", place.port or 80
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def steps(self, visit: str, **values: int) -> AsyncGenerator[bytes]:
        """Asks GET /api/stage/play and yields each frame; ends with the answer. Raises ConnectionError otherwise."""
        path = f"/api/stage/play?{urlencode(values)}"
        request = f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{VISIT_HEADER}: {visit}\r\n\r\n"
        reader, data = await self._ask(request.encode())
        answer = _Answer()
        while data:
            answer.parser.feed_data(data)
            if answer.parser.get_status_code() != 200:
                raise ConnectionError(f"the stream was answered with {answer.parser.get_status_code()}")
            for frame in answer.frames():
                yield frame
            if answer.is_complete:
                return
            data = await reader.read(READ_BYTES)
        raise ConnectionError("the stream broke off")

    def close(self) -> None:
        """Ends the connection, and a stream with it: that is how a browser pauses."""
        if self._connection is not None:
            self._connection[1].transport.abort()
            self._connection = None

    async def _ask(self, request: bytes) -> tuple[asyncio.StreamReader, bytes]:
        """The first bytes of the answer. A kept connection that the server had ended already is replaced, once."""
        kept, self._connection = self._connection, None
        for connection in (kept, None):
            if connection is None:
                connection = await asyncio.open_connection(self._host, self._port)
            elif connection[0].at_eof():
                continue
            self._connection = connection
            connection[1].write(request)
            with suppress(ConnectionResetError):
                if data := await connection[0].read(READ_BYTES):
                    return connection[0], data
        raise ConnectionError("the stream was not answered")


class _Answer:
    """What httptools tells of one answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.body = bytearray()
        self.is_complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True

    def frames(self) -> list[bytes]:
        """The whole frames that have arrived, each once."""
        found = []
        while len(self.body) >= 4:
            length = struct.unpack_from("<I", self.body)[0]
            if len(self.body) < 4 + length:
                break
            found.append(bytes(self.body[4 : 4 + length]))
            del self.body[: 4 + length]
        return found
