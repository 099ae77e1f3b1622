"""A visitor without a browser: speaks Streamlit's websocket protocol, and the stage's. For tests of many at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from pages.shared import wire

PATIENCE_SECONDS = 60
PAGE = "prefill_and_decode"


@contextmanager
def session(address: str, query: str, prompt: str) -> Iterator[Client]:
    """A session on page 1 with this prompt in its box."""
    stream = f"{address.replace('http', 'ws')}/_stcore/stream"
    with connect(stream, subprotocols=[Subprotocol("streamlit")], max_size=None) as socket:
        yield Client(socket, f"{address}/{PAGE}?{query}", query, prompt)


class Client:
    """One session. `frame` is the header of the stage's newest frame."""

    def __init__(self, socket: ClientConnection, url: str, query: str, prompt: str) -> None:
        self._socket, self._url, self._query, self._prompt = socket, url, query, prompt
        self._stage = self._fragment = self._page = self._prompt_box = ""
        self.frame: dict[str, Any] = {}
        self._run()

    def press(self, action: str) -> dict[str, Any]:
        """Sends what the stage sends for a click and waits until its step is done. Returns the frame's header."""
        seen = self.frame["version"]
        self._send(action)
        while self.frame["version"] == seen:
            if self.frame["busy"]:
                self._send("look")
            else:  # a prefill has the settings drawn first
                self._listen()
        return self.frame

    def _send(self, action: str) -> None:
        shown = self.frame
        event = {"action": action, "visit": shown["visit"], "run": shown["run"], "seen": shown["version"], "have": 0}
        self._run([{"event": "event", "value": event}])

    def _run(self, events: list[dict[str, Any]] | None = None) -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string, rerun.page_script_hash = self._query, self._page
        rerun.context_info.locale, rerun.context_info.url = "en-US", self._url
        if not self._page:
            rerun.page_name = PAGE
        if events:
            rerun.fragment_id = self._fragment
            box, stage = rerun.widget_states.widgets.add(), rerun.widget_states.widgets.add()
            box.id, box.string_value = self._prompt_box, self._prompt
            stage.id = f"$$STREAMLIT_INTERNAL_KEY_{self._stage}__events"
            stage.json_trigger_value = json.dumps(events)
        self._socket.send(message.SerializeToString())
        self._listen()

    def _listen(self) -> None:
        """Takes in what the server says until a script has finished."""
        kind = ""
        while kind != "script_finished":
            message = ForwardMsg()
            answer = self._socket.recv(PATIENCE_SECONDS)
            assert isinstance(answer, bytes)
            message.ParseFromString(answer)
            kind = message.WhichOneof("type") or ""
            if kind == "navigation":
                self._page = message.navigation.page_script_hash
            elif kind == "delta":
                self._drawn(message)

    def _drawn(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if kind == "text_area" and element.text_area.id.endswith("-prompt"):
            self._prompt_box = element.text_area.id
        elif kind == "bidi_component" and element.bidi_component.bytes:
            self._stage, self._fragment = element.bidi_component.id, message.delta.fragment_id
            self.frame, _ = wire.unpack(element.bidi_component.bytes)
