"""A visitor without a browser: speaks Streamlit's websocket protocol, and the stage's. For tests of many at once."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from pages.shared import wire

PATIENCE_SECONDS = 60


class Client:
    """One session on page 1. `frame` is the header of the stage's newest frame."""

    def __init__(self, address: str, query: str) -> None:
        self._url, self._query = f"{address}/prefill_and_decode?{query}", query
        self._socket = connect(
            f"{address.replace('http', 'ws')}/_stcore/stream",
            origin=None,
            subprotocols=[Subprotocol("streamlit")],
            max_size=None,
        )
        self._component = self._fragment = self._page = ""
        self.frame: dict[str, Any] = {}
        self._run()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def press(self, action: str) -> dict[str, Any]:
        """Sends what the stage sends for a click and waits until its step is done. Returns the frame's header."""
        seen = self.frame["version"]
        self._send(action)
        while self.frame["version"] == seen:  # a prefill has the settings drawn first
            self._send("look") if self.frame["busy"] else self._listen()
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
            rerun.page_name = "prefill_and_decode"
        if events:
            rerun.fragment_id = self._fragment
            state = rerun.widget_states.widgets.add()
            state.id = f"$$STREAMLIT_INTERNAL_KEY_{self._component}__events"
            state.json_trigger_value = json.dumps(events)
        self._socket.send(message.SerializeToString())
        self._listen()

    def _listen(self) -> None:
        """Takes in what the server says until a script has finished."""
        while True:
            message = ForwardMsg()
            answer = self._socket.recv(PATIENCE_SECONDS)
            assert isinstance(answer, bytes)
            message.ParseFromString(answer)
            kind = message.WhichOneof("type")
            if kind == "navigation":
                self._page = message.navigation.page_script_hash
            elif kind == "delta" and message.delta.new_element.WhichOneof("type") == "bidi_component":
                component = message.delta.new_element.bidi_component
                self._component, self._fragment = component.id, message.delta.fragment_id
                self.frame, _ = wire.unpack(component.bytes)
            elif kind == "script_finished":
                return
