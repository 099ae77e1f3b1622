"""The live route of the batch: what the engine is at, the same bytes for everybody who asks within a second."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pages.shared.batch import status_json
from pages.shared.bundle import File
from pages.shared.resources import engine_status

if TYPE_CHECKING:
    from core.engine.status import Status

FRESH_SECONDS = 1.0
HEADERS = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}


class News:
    """The newest status as it is sent: made, and packed, at most once a second, however many ask."""

    def __init__(self, status: Callable[[], Status], clock: Callable[[], float] = time.monotonic) -> None:
        self._status, self._clock = status, clock
        self._made = 0.0
        self._file: File | None = None

    def file(self) -> File:
        """The answer of this second."""
        now = self._clock()
        if self._file is None or now - self._made >= FRESH_SECONDS:
            body = json.dumps(status_json(self._status()), ensure_ascii=False, separators=(",", ":")).encode()
            self._file, self._made = File("application/json", body, gzip.compress(body, mtime=0)), now
        return self._file


def batch_routes(base: str, news: News | None = None) -> list[Route]:
    """The route under the server's base path."""
    newest = news or News(engine_status)

    async def batch(request: Request) -> Response:
        file = newest.file()
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.gzipped, media_type=file.media_type, headers=HEADERS | {"Content-Encoding": "gzip"})
        return Response(file.body, media_type=file.media_type, headers=HEADERS)

    return [Route(f"{base}/api/batch", batch, methods=["GET"])]
