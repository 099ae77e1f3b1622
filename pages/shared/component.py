"""Components of ours: declared inline with a few lines that import our module from our own route."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit import config

from pages.shared.bundle import bundle


def component(name: str, folder: str) -> Any:
    """The component `name`, drawn by assets/`folder`/main.js."""
    base = config.get_option("server.baseUrlPath").strip("/")
    module = f"{base}/{bundle().path}/{folder}/main.js".lstrip("/")
    # Streamlit runs this text from a blob, which has no address of its own: the path is completed by the page's.
    loader = (
        f'const drawn = import(new URL("/{module}", document.baseURI).href);\n'
        "export default async (component) => (await drawn).show(component);"
    )
    return st.components.v2.component(name, js=loader, isolate_styles=False)
