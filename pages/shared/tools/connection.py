"""Whether whoever asked for a measurement is still there: Streamlit keeps a session for minutes after its tab is gone.

Meanwhile the measurement would hold the exclusive slot, and others would wait for what nobody looks at.
"""

from __future__ import annotations

from threading import Timer
from typing import Protocol
from weakref import WeakSet

import streamlit as st

from pages.shared.keep import GRACE_SECONDS


class Held(Protocol):
    """What ends with the connection that last held it."""

    connection: Connection | None

    def cancel(self) -> None: ...


class Connection:
    """One browser's, as long as it stands. After a drop there is another, which takes up what it sees."""

    def __init__(self) -> None:
        self._held: WeakSet[Held] = WeakSet()

    def hold(self, held: Held) -> None:
        """From now on it ends with this connection, and with no earlier one."""
        held.connection = self
        self._held.add(held)

    def end(self) -> None:
        """Ends what no later connection has taken up."""
        for held in list(self._held):
            if held.connection is self:
                held.cancel()


def gone(connection: Connection) -> None:
    """It is gone: a moment is left for its browser to come back."""
    timer = Timer(GRACE_SECONDS, connection.end)
    timer.daemon = True
    timer.start()


@st.cache_resource(scope="session", on_release=gone, show_spinner=False, max_entries=1)
def this_connection() -> Connection:
    """The session's. Streamlit releases it the moment it is gone."""
    return Connection()
