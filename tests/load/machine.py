"""What the server and the clients take while they are at it: memory, processor, and what the server's metrics say."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.browser.server import Server

SAMPLE_SECONDS, SCRAPE_SECONDS = 1.0, 5.0
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Looks at the server once a second while the `async with` block lasts."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.resident: list[tuple[float, int]] = []
        self.peaks: dict[str, float] = {}
        self.server_cores = self.client_cores = self.other_cores = 0.0

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._before = self._server_seconds(), time.process_time(), busy_seconds()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        after = self._server_seconds(), time.process_time(), busy_seconds()
        seconds = time.monotonic() - self._began
        self.server_cores, self.client_cores, busy = (
            (now - then) / seconds for now, then in zip(after, self._before, strict=True)
        )
        self.other_cores = max(0.0, busy - self.server_cores - self.client_cores)

    async def _watch(self) -> None:
        scraped = 0.0
        while True:
            self.resident.append((time.monotonic() - self._began, self.server.resident_bytes))
            if time.monotonic() - scraped > SCRAPE_SECONDS:
                scraped = time.monotonic()
                for name, value in (await asyncio.to_thread(scrape, self.server.address)).items():
                    self.peaks[name] = max(value, self.peaks.get(name, value))
            await asyncio.sleep(SAMPLE_SECONDS)

    def _server_seconds(self) -> float:
        stat = Path(f"/proc/{self.server.process_id}/stat").read_text()
        user, system = stat.rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / TICKS


def busy_seconds() -> float:
    """Seconds of all processor cores together that somebody used, on this machine or, as "steal", beside it."""
    user, nice, system, _idle, _wait, interrupts, soft, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, interrupts, soft, steal))) / TICKS


def scrape(address: str) -> dict[str, float]:
    """The server's metrics, the samples of one name added up."""
    with urllib.request.urlopen(f"{address}/api/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found
