"""Save a run, export it as a web page, open a saved one: below the stage."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from core.engine.saved_run import MOST_FILE_BYTES, SUFFIX, SavedRun, open_saved, save
from core.refusal import Refusal
from pages.shared.html import Html, fill
from pages.shared.language import language, t
from pages.shared.resources import engine
from pages.shared.stage import Event
from pages.shared.stepping import slot_of
from pages.shared.tools.gather import gathered
from pages.shared.tools.replay import Opened, opened_frame
from pages.shared.tools.webpage import web_page
from pages.shared.trouble import notice, refuse
from pages.shared.units import units
from pages.shared.visit import Visit

CSS = Path(__file__).resolve().parents[3] / "assets" / "keepsake.css"
_OPENED, _REFUSED, _FIELDS = "keepsake_opened", "keepsake_refused", "keepsake_fields"
_LONGEST_NAME = 60
# Streamlit has these texts in English only, so the sheet writes the page's own words over them.
_WORDS_ON_THE_FIELD = """<style>.st-key-keepsake_open {{
  --tbt-drop-here: "{here}"; --tbt-drop-choose: "{choose}"; --tbt-drop-refused: "{refused}"; }}</style>"""


def opened_run() -> Opened | None:
    """The file this session has opened; it stands on the stage instead of the visitor's own run."""
    opened: Opened | None = st.session_state.get(_OPENED)
    return opened


def replay_frame(opened: Opened, event: Event | None) -> bytes:
    """What the stage is given while a file is open. The engine has no part in it."""
    return opened_frame(opened, event, language(), units(), st.session_state["speed"])


def show(visit: Visit) -> None:
    """Draws the two buttons and the field a file is dropped on."""
    st.html(CSS)
    opened = opened_run()
    with st.container(border=True, key="keepsake"):
        st.html(fill('<h2 class="tbt-h2">{title}</h2><p class="tbt-note">{text}</p>', **_heading()))
        with st.container(key="keepsake_parts"):
            with st.container(key="keepsake_save", horizontal=True):
                _buttons(visit, opened)
            _field()
        if opened is not None:
            notice(t("keepsake.opened", name=opened.file_name))
            st.button(t("keepsake.close"), key="keepsake_close", on_click=close)
        refusal = st.session_state.get(_REFUSED)
        if refusal is not None:
            refuse(refusal)


def close() -> None:
    """Puts the file away: on the stage is the visitor's own run again."""
    st.session_state[_OPENED] = st.session_state[_REFUSED] = None


def take(name: str, file: bytes) -> None:
    """Opens a file that was dropped, or keeps the reason why not; what was open before stays then."""
    st.session_state[_REFUSED] = None
    try:
        st.session_state[_OPENED] = Opened(open_saved(file), name)
    except Refusal as refusal:
        st.session_state[_REFUSED] = refusal


def _heading() -> dict[str, str]:
    return {"title": t("keepsake.title"), "text": t("keepsake.about")}


def _buttons(visit: Visit, opened: Opened | None) -> None:
    """What they save is made when they are pressed, of the run as it is then: also of steps this page has not seen."""
    saved = _source(visit, opened)
    spoken, prefixes = language(), units()
    trace = opened.saved.trace if opened else visit.trace
    model = opened.saved.model.name if opened else visit.started.model.name if visit.started else ""
    count = len(trace.output_ids) if trace else 0
    name = t("keepsake.file_name", model=_plain(model), count=count)
    has_none = trace is None or not trace.steps
    for kind, suffix, media_type, make in (
        ("save", SUFFIX, "application/octet-stream", lambda: save(saved())),
        ("page", ".html", "text/html", lambda: web_page(saved(), spoken, prefixes)),
    ):
        st.download_button(
            t(f"keepsake.{kind}"),
            make,
            f"{name}{suffix}",
            media_type,
            key=f"keepsake_{kind}_button",
            on_click="ignore",
            disabled=has_none,
            help=t(f"keepsake.{kind}_help"),
        )
    if has_none or opened:
        words = "keepsake.of_file" if opened else "keepsake.nothing"
        st.html(fill('<p class="tbt-note">{text}</p>', text=t(words)))


def _source(visit: Visit, opened: Opened | None) -> Callable[[], SavedRun]:
    """The opened run, or the visitor's own as it is when the file is made."""
    worker, slot = engine(), slot_of(visit)

    def saved() -> SavedRun:
        found = opened.saved if opened else gathered(visit, worker, slot)
        if found is None:
            raise LookupError("the run was reset while its file was asked for")
        return found

    return saved


def _field() -> None:
    """Where a file is dropped. It is emptied at once: what was in it is opened, or refused by a sentence."""
    number = st.session_state.setdefault(_FIELDS, 0)
    key = f"keepsake_file_{number}"
    with st.container(key="keepsake_open"):
        words = {name: t(f"keepsake.drop_{name}") for name in ("here", "choose", "refused")}
        st.html(Html(_WORDS_ON_THE_FIELD.format(**words)))
        # Of any name: a wrong file is told what is wrong with it.
        largest = MOST_FILE_BYTES >> 20
        st.file_uploader(t("keepsake.open"), key=key, on_change=_dropped, args=(key,), max_upload_size=largest)


def _dropped(key: str) -> None:
    file = st.session_state.get(key)
    if file is not None:
        take(str(file.name), file.getvalue())
        st.session_state[_FIELDS] += 1


def _plain(name: str) -> str:
    """A model's name as a part of a file's."""
    return re.sub(r"[^\w.-]+", "-", name)[:_LONGEST_NAME]
