"""The frame around every page: navigation, title and question, language, look."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.shared.html import fill
from pages.shared.language import language_switch, t
from pages.shared.waiting import still_loading

CSS = Path(__file__).resolve().parent.parent / "assets" / "page.css"
# file, name in the word catalogue, whether the page runs before the models are loaded
PAGES = (("0_home.py", "home", True), ("1_prefill_and_decode.py", "prefill_and_decode", False))

pages = {
    name: st.Page(file, title=t(f"title_{name}"), url_path="" if name == "home" else name, default=name == "home")
    for file, name, _ in PAGES
}
page = st.navigation(list(pages.values()), position="top")
name, needs_no_model = next((name, early) for _, name, early in PAGES if pages[name].url_path == page.url_path)

st.set_page_config(page_title=f"{page.title} · {t('app_name')}", layout="wide")
st.html(CSS)
with st.container(horizontal=True, vertical_alignment="top", horizontal_alignment="distribute", key="frame_header"):
    st.html(
        fill(
            '<header class="tbt-header"><h1>{title}</h1><p>{question}</p></header>',
            title=t(f"heading_{name}"),
            question=t(f"question_{name}"),
        )
    )
    language_switch()

if needs_no_model or not still_loading():
    page.run()
