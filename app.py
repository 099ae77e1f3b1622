"""The server: loads the models once, keeps the collector out of everybody's way, and answers /api.

`streamlit run app.py` runs it, and so does any ASGI server (`uvicorn app:app`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import streamlit as st
from streamlit import config

from pages.shared.resources import keeper, shelf
from pages.shared.routes import api_routes
from pages.shared.trouble import apologise

COLLECTION_SECONDS = 45


@asynccontextmanager
async def lifespan(_app: st.App) -> AsyncIterator[None]:
    """Begins to load and yields at once: pages answer meanwhile and say what is loading."""
    # With torch loaded, a collection after every run would stop every visitor for 60 to 160 ms.
    config.set_option("runner.postScriptGC", False)
    models = shelf()
    housekeeping = asyncio.create_task(keep_house(models.wait_until_started))
    yield
    housekeeping.cancel()
    with suppress(asyncio.CancelledError):
        await housekeeping
    models.stop()


async def keep_house(wait_until_loaded: Callable[[], None]) -> None:
    """Once the models are there, takes all that lives on out of the collector's sight; then tidies up on a timer."""
    await asyncio.to_thread(wait_until_loaded)
    gc.collect()
    gc.freeze()
    while True:
        await asyncio.sleep(COLLECTION_SECONDS)
        keeper().sweep()
        gc.collect()


app = st.App(
    Path(__file__).parent / "pages" / "frame.py",
    lifespan=lifespan,
    routes=api_routes(config.get_option("server.baseUrlPath")),
    on_script_error=apologise,
)
