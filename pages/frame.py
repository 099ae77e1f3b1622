"""The frame around every page: navigation, title and question, language, units, look."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from pages.shared.home.path import note_seen
from pages.shared.html import fill
from pages.shared.language import HTML_TAGS, language, language_switch, t
from pages.shared.link import first_run_ends, is_first_run, link, read_link, write_link
from pages.shared.settings import ANY_PAGE
from pages.shared.units import units_switch
from pages.shared.waiting import still_loading

ASSETS = Path(__file__).resolve().parent.parent / "assets"
# file, name in the word catalogue, whether the page runs before the models are loaded
PAGES = (
    ("0_home.py", "home", True),
    ("1_prefill_and_decode.py", "prefill_and_decode", False),
    ("2_kv_cache.py", "kv_cache", True),
    ("3_memory_and_compute.py", "memory_and_compute", True),
    ("4_where_the_time_goes.py", "where_the_time_goes", True),
    ("5_lab.py", "lab", False),
    ("6_which_term_does_it_change.py", "which_term_does_it_change", True),
    ("7_questions.py", "questions", True),
    ("8_planner.py", "planner", True),
)

read_link(ANY_PAGE)
pages = {
    name: st.Page(file, title=t(f"title_{name}"), url_path="" if name == "home" else name, default=name == "home")
    for file, name, _ in PAGES
}
page = st.navigation(list(pages.values()), position="top")
name, needs_no_model = next((name, early) for _, name, early in PAGES if pages[name].url_path == page.url_path)
read_link(name)

st.set_page_config(page_title=f"{page.title} · {t('app_name')}", layout="wide")
for sheet in ("page.css", "controls.css"):
    st.html(ASSETS / sheet)
header = st.container(horizontal=True, key="frame_header")
with header:
    st.html(
        fill(
            '<header class="tbt-header"><h1>{title}</h1><p>{question}</p></header>',
            title=t(f"heading_{name}"),
            question=t(f"question_{name}"),
        )
    )
    with st.container(horizontal=True, width="content", gap="small", key="frame_switches"):
        language_switch()
        units_switch()

# The document's language, for screen readers and fonts. And the address: streamlit answers every change of
# st.query_params with a step of the browser's history, so that *back* would undo one setting after another, and only in
# the address. Here a step to the page that is shown already replaces the address instead. In a session's first run
# streamlit's step would come before this script, so the script writes the first address itself.
SCRIPT = """<script>
document.documentElement.lang = '{tag}';
if (!window.tbtPushState) {{
  window.tbtPushState = history.pushState;
  history.pushState = function (state, title, url) {{
    const here = new URL(url ?? "", location.href).pathname === location.pathname;
    return (here ? history.replaceState : window.tbtPushState).call(history, state, title, url);
  }};
  if ("{address}") {{
    const address = new URLSearchParams("{address}");
    for (const [name, value] of new URLSearchParams(location.search)) {{
      if (name.startsWith("embed")) address.append(name, value);
    }}
    history.replaceState(history.state, "", `${{location.pathname}}?${{address}}`);
  }}
}}
</script>"""
with header:
    address = urlencode(link(name)) if is_first_run() else ""
    st.html(SCRIPT.format(tag=HTML_TAGS[language()], address=address), unsafe_allow_javascript=True)
write_link(name)
note_seen(name)

try:
    if needs_no_model or not still_loading():
        page.run()
finally:
    first_run_ends()
