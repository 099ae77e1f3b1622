"""Components of ours: declared inline with a few lines that import our module from our own route."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit import config

from pages.shared.bundle import bundle


def component(name: str, folder: str) -> Any:
    """The component `name`, drawn by assets/`folder`/main.js."""
    base = config.get_option("server.baseUrlPath").strip("/")
    assets = f"{base}/{bundle().path}".lstrip("/")
    # Streamlit runs this text from a blob, which has no address of its own: the path is completed by the page's.
    loader = (
        f'const asset = (file) => import(new URL("/{assets}/" + file, document.baseURI).href);\n'
        f'const loaded = Promise.all([asset("stage/newest.js"), asset("{folder}/main.js")]);\n'
        "const shown = loaded.then(([{ newestEnds }, { show }]) => newestEnds(show));\n"
        "export default async (component) => (await shown)(component);"
    )
    return st.components.v2.component(name, js=loader, isolate_styles=False)
