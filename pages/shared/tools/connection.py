"""Whether whoever asked for a measurement is still there: Streamlit keeps a session for minutes after its tab is gone.

Meanwhile the measurement would hold the exclusive slot, and others would wait for what nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer
from typing import Protocol
from weakref import WeakSet

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared.keep import GRACE_SECONDS


class Held(Protocol):
    """What ends with its visitor."""

    def cancel(self) -> None: ...


class Connection:
    """One browser's, as long as it stands. `is_back` says whether the browser has another by now."""

    def __init__(self, is_back: Callable[[], bool]) -> None:
        self._is_back = is_back
        self._held: WeakSet[Held] = WeakSet()

    def hold(self, held: Held) -> None:
        """It ends when the connection is gone and the browser does not come back. Again changes nothing."""
        self._held.add(held)

    def end(self) -> None:
        """Ends what it holds, unless the browser is back: a script that was running meanwhile proves nothing."""
        for held in [] if self._is_back() else list(self._held):
            held.cancel()


def gone(connection: Connection) -> None:
    """It is gone: a moment is left for its browser to come back."""
    timer = Timer(GRACE_SECONDS, connection.end)
    timer.daemon = True
    timer.start()


@st.cache_resource(scope="session", on_release=gone, show_spinner=False, max_entries=1)
def this_connection() -> Connection:
    """The session's. Streamlit releases it the moment it is gone."""
    context = get_script_run_ctx()
    session = "" if context is None else context.session_id
    return Connection(lambda: runtime.exists() and runtime.get_instance().is_active_session(session))
