"""Where a sweep's file is dropped: this lab's own or a server's, whichever it says it is. Read as a stranger's."""

from __future__ import annotations

import streamlit as st

from core.lab.remote.record import is_record
from core.refusal import Refusal
from pages.shared.html import Html
from pages.shared.lab.opened import MOST_FILE_MIB, open_file
from pages.shared.lab.server.opened import open_sweep
from pages.shared.language import t
from pages.shared.trouble import refuse

OWN, SERVER = "lab_open", "lab_open_server"
"""The two fields. Either takes a file of either kind, which then opens in its own place."""
_REFUSED, _FIELDS, _ELSEWHERE = "lab_refused", "lab_fields", "lab_dropped_elsewhere"
# Streamlit has these texts in English only, so the sheet writes the page's own words over them.
_WORDS_ON_THE_FIELD = """<style>.st-key-{field} {{
  --tbt-drop-here: "{here}"; --tbt-drop-choose: "{choose}"; --tbt-drop-refused: "{refused}"; }}</style>"""


def drop_field(field: str, label: str) -> None:
    """OWN or SERVER. It is emptied at once: what was in it is opened, or refused by a sentence below it."""
    key = f"{field}_{st.session_state.setdefault(_FIELDS, 0)}"
    words = {name: t(f"lab.drop_{name}", most=MOST_FILE_MIB) for name in ("here", "choose", "refused")}
    st.html(Html(_WORDS_ON_THE_FIELD.format(field=field, **words)))
    # Of any name: a wrong file is told what is wrong with it.
    st.file_uploader(label, key=key, on_change=_dropped, args=(field, key), max_upload_size=MOST_FILE_MIB)
    where, refusal = st.session_state.get(_REFUSED) or ("", None)
    if where == field and refusal is not None:
        refuse(refusal)
    if st.session_state.pop(_ELSEWHERE, False):
        st.rerun()  # a part of the page that this one is not in has something to show


def take(field: str, name: str, content: bytes) -> None:
    """Opens a file that was dropped, or keeps the reason why not; what was open before stays then."""
    st.session_state[_REFUSED] = None
    try:
        text = _text(content)
        kind = SERVER if is_record(text) else OWN
        if kind == SERVER:
            open_sweep(name, text)
        else:
            open_file(name, content)
        st.session_state[_ELSEWHERE] = kind != field
    except Refusal as refusal:
        st.session_state[_REFUSED] = field, refusal


def _text(content: bytes) -> str:
    """What a file says; "" for one that is too large, or no text: the lab's own reading then says so."""
    try:
        return content.decode("utf-8-sig") if len(content) <= MOST_FILE_MIB << 20 else ""
    except UnicodeDecodeError:
        return ""


def _dropped(field: str, key: str) -> None:
    file = st.session_state.get(key)
    if file is not None:
        take(field, str(file.name), file.getvalue())
        st.session_state[_FIELDS] += 1
