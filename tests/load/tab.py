"""A tab without a browser: Streamlit's websocket, and the questions that assets/stage sends over it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

from pages.shared import wire
from tests.load.record import Record
from tests.load.widgets import Widgets

PAGE = "prefill_and_decode"
RETRY_SECONDS, LOOK_AGAIN_SECONDS = 2.5, 0.35
"""As in assets/stage/asking.js."""
OPEN_SECONDS = 60
REFUSAL = 'class="tbt-notice tbt-refusal"'


class Tab:
    """A session on page 1. `header` is what the page said last, `record` the run as it arrived."""

    def __init__(self, address: str, query: str) -> None:
        self._address, self._query = address, query
        self._url = f"{address}/{PAGE}?{query}"
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._page = ""
        self._widgets = Widgets()
        self._answered = asyncio.Event()
        self.header: dict[str, Any] = {}
        self.record = Record()
        self.problems: list[str] = []
        self.waiting_notices: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._leaves = False

    async def open(self) -> None:
        """Connects, and waits until the stage stands there."""
        stream = f"{self._address.replace('http', 'ws', 1)}/_stcore/stream"
        self._socket = await connect(
            stream,
            origin=Origin(self._address),
            subprotocols=[Subprotocol("streamlit")],
            compression=None,
            max_size=None,
            open_timeout=OPEN_SECONDS,
            ping_interval=None,
            proxy=None,
        )
        self._reader = asyncio.create_task(self._read(self._socket))
        await self._rerun()
        await asyncio.wait_for(self._answered.wait(), OPEN_SECONDS)

    async def write_prompt(self, text: str) -> None:
        """Types a prompt into its box and leaves the box: the page is drawn again."""
        self._answered.clear()
        await self._rerun(fragment=self._widgets.write("prompt", text))
        await asyncio.wait_for(self._answered.wait(), OPEN_SECONDS)

    @property
    def is_asking(self) -> bool:
        """Whether an event waits for its answer: the stage sends the next one behind it."""
        return self._asking is not None and not self._asking.done()

    def ask(self, action: str) -> asyncio.Task[None]:
        """Sends an event of the stage; done with its answer. It is sent again when none comes.

        While the answer says that the step is under way or has to wait, asks how far it has come, until it is done.
        """
        self._asking = asyncio.create_task(self._ask_until_done(action))
        return self._asking

    async def answered(self) -> None:
        """Waits for the answer to what was asked last; one that does not come is a problem of this tab."""
        if self._asking is not None:
            (failure,) = await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None
            if failure is not None:
                self.problems.append(f"{type(failure).__name__}: {failure}")

    async def _ask_until_done(self, action: str) -> None:
        await self._ask(action)
        while self.header["busy"]:
            if self.header["notice"] and self.header["notice"]["text"] not in self.waiting_notices:
                self.waiting_notices.append(self.header["notice"]["text"])
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await self._ask("look")

    async def _ask(self, action: str) -> None:
        record = self.record
        event = {"action": action, "visit": record.visit, "run": record.run, "seen": record.version}
        message = json.dumps([{"event": "event", "value": {**event, "have": len(record.steps)}}])
        self._answered.clear()
        while True:
            await self._rerun(message)
            try:
                await asyncio.wait_for(self._answered.wait(), RETRY_SECONDS)
                return
            except TimeoutError:
                if self._reader is None or self._reader.done():
                    raise ConnectionError("the page's connection is gone") from None

    async def leave(self) -> None:
        """Closes the tab as a browser does."""
        self._leaves = True
        if self._socket is not None:
            await self._socket.close()
        await self._end()

    async def vanish(self) -> None:
        """Is gone without a word: the connection breaks off."""
        self._leaves = True
        if self._socket is not None:
            self._socket.transport.abort()
        await self._end()

    async def _end(self) -> None:
        under_way = [task for task in (self._asking, self._reader) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _rerun(self, event: str = "", fragment: str = "") -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string, rerun.page_script_hash = self._query, self._page
        rerun.context_info.locale, rerun.context_info.url = "en-US", self._url
        rerun.context_info.timezone = "UTC"
        if not self._page:
            rerun.page_name = PAGE
        rerun.fragment_id = self._widgets.fragment if event else fragment
        self._widgets.tell(rerun.widget_states, event)
        assert self._socket is not None
        await self._socket.send(message.SerializeToString())

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for data in socket:
                assert isinstance(data, bytes)
                self._take(data)
            if not self._leaves:
                self.problems.append("the server closed the page's connection")
        except ConnectionClosed as error:
            if not self._leaves:
                self.problems.append(f"the page's connection broke: {error}")
        except (AssertionError, ValueError) as error:
            self.problems.append(str(error))

    def _take(self, data: bytes) -> None:
        message = ForwardMsg.FromString(data)
        kind = message.WhichOneof("type")
        if kind == "navigation":
            self._page = message.navigation.page_script_hash
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            self._look_for_trouble(element)
            frame = self._widgets.drawn(element, message.delta.fragment_id)
            if frame is not None:
                self._take_frame(frame)

    def _take_frame(self, frame: bytes) -> None:
        header, _ = wire.unpack(frame)
        if not self.record.take(header, streamed=False):
            return  # the question that is under way is sent again, with what is here
        self.header = header
        if header["notice"] and header["notice"]["kind"] == "refusal":
            self.problems.append(f"the stage says: {header['notice']['text']}")
        self._answered.set()

    def _look_for_trouble(self, element: Any) -> None:
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.problems.append(f"the page shows an exception: {element.exception.type}")
        elif kind == "html" and REFUSAL in element.html.body:
            self.problems.append(f"the page says: {element.html.body[:200]}")
