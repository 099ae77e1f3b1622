"""A sweep of another machine: its CSV is checked, and compared. A file is read as a stranger's."""

from __future__ import annotations

import streamlit as st

from core.lab.sweep.table import read_sweep
from core.refusal import Refusal
from pages.shared.lab.notes import is_possible
from pages.shared.lab.shown import Shown, shown_file
from pages.shared.language import t
from pages.shared.trouble import notice

MOST_FILE_MIB, MOST_ROWS, MOST_CELLS, LONGEST_NAME = 2, 20_000, 1024, 40
"""Of a file: its size, its rows, and different pairs of context and batch, each of which is drawn."""
_OPENED = "lab_opened"


def opened_file() -> Shown | None:
    """What this session has opened."""
    opened: Shown | None = st.session_state.get(_OPENED)
    return opened


def open_file(name: str, content: bytes) -> None:
    """Opens one. Raises Refusal for what is no sweep of this lab; what was open before stays then."""
    st.session_state[_OPENED] = read_file(name, content)


def show_opened() -> None:
    """What is open, and how it is put away."""
    opened = opened_file()
    if opened is not None:
        notice(t("lab.opened", name=opened.title, rows=len(opened.report.rows)))
        st.button(t("lab.close"), key="lab_close", on_click=close)


def close() -> None:
    """Puts the file away."""
    st.session_state[_OPENED] = None


def read_file(name: str, content: bytes) -> Shown:
    """A sweep out of a file's bytes. Raises Refusal for what is none, or holds numbers that none can have."""
    short = name[:LONGEST_NAME]
    try:
        if len(content) > MOST_FILE_MIB << 20:
            raise Refusal("lab.file_no_sweep", file=short)
        head, rows = read_sweep(content.decode("utf-8-sig"), short)
    except UnicodeDecodeError:
        raise Refusal("lab.file_no_sweep", file=short) from None
    except Refusal as refusal:
        if refusal.key == "sweep.not_a_sweep":  # whose sentence is for a file that is to be written
            raise Refusal("lab.file_no_sweep", file=short) from None
        raise
    n_cells = len({(row.context, row.batch) for row in rows})
    if len(rows) > MOST_ROWS or n_cells > MOST_CELLS or not all(map(is_possible, rows)):
        raise Refusal("lab.file_absurd", file=short)
    return shown_file({key[:LONGEST_NAME]: text[:200] for key, text in head.items()}, rows, short)
