"""What a browser says of the widgets on a page: every rerun it asks for carries the value of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlit.proto.Element_pb2 import Element
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates


def _text(widget: Any, state: WidgetState) -> None:
    state.string_value = widget.value if widget.set_value else widget.default


def _number(widget: Any, state: WidgetState) -> None:
    state.double_value = widget.value if widget.set_value else widget.default


def _switch(widget: Any, state: WidgetState) -> None:
    state.bool_value = widget.value if widget.set_value else widget.default


def _choice(widget: Any, state: WidgetState) -> None:
    options = list(widget.options)
    state.string_value = widget.raw_value if widget.set_value else options[widget.default] if options else ""


KINDS: dict[str, Callable[[Any, WidgetState], None]] = {
    "text_area": _text,
    "text_input": _text,
    "number_input": _number,
    "checkbox": _switch,
    "selectbox": _choice,
}


class Widgets:
    """The values of a page's widgets, taken from what the server drew and changed as a visitor would."""

    def __init__(self) -> None:
        self._states: dict[str, WidgetState] = {}
        self._fragments: dict[str, str] = {}
        self.stage = self.fragment = ""

    def drawn(self, element: Element, fragment: str) -> bytes | None:
        """Notes a widget the server drew; of the stage, gives the frame it came with."""
        kind = element.WhichOneof("type")
        if kind == "bidi_component" and element.bidi_component.bytes:
            self.stage, self.fragment = element.bidi_component.id, fragment
            return bytes(element.bidi_component.bytes)
        if kind in KINDS:
            widget = getattr(element, kind)
            if widget.set_value or widget.id not in self._states:
                state = WidgetState(id=widget.id)
                KINDS[kind](widget, state)
                self._states[widget.id] = state
            self._fragments[widget.id] = fragment
        return None

    def write(self, key: str, text: str) -> str:
        """Types a text into the box with this key. Returns the fragment that is to be drawn again."""
        (name,) = (name for name in self._states if name.endswith(f"-{key}"))
        self._states[name].string_value = text
        return self._fragments[name]

    def tell(self, states: WidgetStates, event: str) -> None:
        """Puts all values into a rerun, and the stage's `event` (JSON) where there is one."""
        states.widgets.extend(self._states.values())
        if event:
            states.widgets.add(id=f"$$STREAMLIT_INTERNAL_KEY_{self.stage}__events", json_trigger_value=event)
