"""A sweep of another machine: its CSV is dropped, checked, and compared. A file is read as a stranger's."""

from __future__ import annotations

import streamlit as st

from core.lab.sweep.plan import LEAST_CONTEXT, SweepRow
from core.lab.sweep.table import read_sweep
from core.refusal import Refusal
from pages.shared.html import Html
from pages.shared.lab.shown import Shown, shown_file
from pages.shared.language import t
from pages.shared.trouble import notice, refuse

MOST_FILE_MIB, MOST_ROWS, LONGEST_NAME = 2, 20_000, 40
MOST_COUNT, MOST_BYTES, MOST_SECONDS = 10**8, 10**18, 10**5
"""What a row can hold: positions and sequences, bytes and FLOP of a step in thousands, seconds."""
_OPENED, _REFUSED, _FIELDS = "lab_opened", "lab_refused", "lab_fields"
# Streamlit has these texts in English only, so the sheet writes the page's own words over them.
_WORDS_ON_THE_FIELD = """<style>.st-key-lab_open {{
  --tbt-drop-here: "{here}"; --tbt-drop-choose: "{choose}"; --tbt-drop-refused: "{refused}"; }}</style>"""


def opened_file() -> Shown | None:
    """What this session has opened."""
    opened: Shown | None = st.session_state.get(_OPENED)
    return opened


def field() -> None:
    """Where a file is dropped. It is emptied at once: what was in it is opened, or refused by a sentence."""
    key = f"lab_file_{st.session_state.setdefault(_FIELDS, 0)}"
    with st.container(key="lab_open", gap="xsmall"):
        words = {name: t(f"lab.drop_{name}", most=MOST_FILE_MIB) for name in ("here", "choose", "refused")}
        st.html(Html(_WORDS_ON_THE_FIELD.format(**words)))
        # Of any name: a wrong file is told what is wrong with it.
        st.file_uploader(t("lab.open"), key=key, on_change=_dropped, args=(key,), max_upload_size=MOST_FILE_MIB)
        opened = opened_file()
        if opened is not None:
            notice(t("lab.opened", name=opened.title, rows=len(opened.report.rows)))
            st.button(t("lab.close"), key="lab_close", on_click=close)
        refusal = st.session_state.get(_REFUSED)
        if refusal is not None:
            refuse(refusal)


def take(name: str, content: bytes) -> None:
    """Opens a file that was dropped, or keeps the reason why not; what was open before stays then."""
    st.session_state[_REFUSED] = None
    try:
        st.session_state[_OPENED] = read_file(name, content)
    except Refusal as refusal:
        st.session_state[_REFUSED] = refusal


def close() -> None:
    """Puts the file away."""
    st.session_state[_OPENED] = st.session_state[_REFUSED] = None


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
    if len(rows) > MOST_ROWS or not all(map(_is_possible, rows)):
        raise Refusal("lab.file_absurd", file=short)
    return shown_file({key[:LONGEST_NAME]: text[:200] for key, text in head.items()}, rows, short)


def _is_possible(row: SweepRow) -> bool:
    whole = (row.kv_bytes_formula, row.kv_bytes_measured, row.flops_chapter, row.flops_exact, row.bytes_read)
    return (
        LEAST_CONTEXT <= row.context <= MOST_COUNT
        and 1 <= row.batch <= MOST_COUNT
        and row.repeat <= MOST_COUNT
        and 1e-9 < row.decode_step_s < MOST_SECONDS
        and all(0 < value <= MOST_BYTES for value in whole)
    )


def _dropped(key: str) -> None:
    file = st.session_state.get(key)
    if file is not None:
        take(str(file.name), file.getvalue())
        st.session_state[_FIELDS] += 1
