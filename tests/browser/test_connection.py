"""A connection that breaks in the middle of playing and comes back: through a small proxy that the test can cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.server import Server
from tests.browser.visitor import PATIENCE_MS, Visitor


class Line:
    """Passes bytes on between a port of its own and the server's, as long as it is not cut."""

    def __init__(self, port: int) -> None:
        self._server_port, self._is_up = port, True
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks every connection, and takes no new one."""
        self._is_up = False
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_up = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._is_up:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            end.close()


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    made = Line(int(server.address.rpartition(":")[2]))
    yield made
    made.close()


def test_play_goes_on_after_five_seconds_without_a_connection(line: Line, chromium: Browser) -> None:
    context: Any = chromium.new_context(reduced_motion="reduce")
    visitor = Visitor(context.new_page(), f"http://127.0.0.1:{line.port}")
    visitor.open_stage(model="smollm2", lang="en", prompt="Why is the sky blue?", max=200, speed=4)
    visitor.press("prefill", 1).click("play").shows_more_than(3)
    line.cut()
    visitor.page.wait_for_timeout(5000)
    seen = visitor.steps
    line.mend()
    visitor.shows_more_than(seen + 3)
    ns = [int(row[4]) for row in visitor.screen()["ledger"]]
    assert ns == list(range(ns[0], ns[0] + len(ns)))  # no step is missing, none came twice
    context.close()


@pytest.mark.parametrize(("n_empty", "goes_on"), [(3, True), (20, False)])
def test_play_outlives_streams_that_end_without_a_step_but_not_for_ever(
    visit: Any, n_empty: int, goes_on: bool
) -> None:
    """An event that was sent twice ends the stream that its first answer began; on a bad line that happens again."""
    visitor: Visitor = visit().open_stage(model="tiny", lang="en", prompt="白日依山尽", max=1000, speed=8)
    visitor.press("prefill", 1)
    visitor.page.route("**/api/stage/play*", lambda route: route.fulfill(body=""), times=n_empty)
    visitor.click("play")
    if goes_on:
        visitor.shows_more_than(3)
    else:
        visitor.page.wait_for_selector("[data-act=play][data-drawn^=pause]")
        visitor.page.wait_for_selector("[data-act=play][data-drawn^=play]", timeout=PATIENCE_MS)
        assert visitor.settled() == 1
