"""The server: loads the models once, keeps the collector out of everybody's way, and answers /api.

`streamlit run app.py` runs it, and so does any ASGI server (`uvicorn app:app`).
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import streamlit as st
from streamlit import config

from pages.shared.logs import set_up_logging, task_failed
from pages.shared.memory import hand_back
from pages.shared.questions.kept import progress_keeper
from pages.shared.resources import keeper, shelf, stop_engine, sweep_engine
from pages.shared.routes import api_routes
from pages.shared.trouble import apologise

COLLECTION_SECONDS = 45
# The engine asks for Python's lock after every operator; a page that is drawn meanwhile hands it over this soon.
SWITCH_SECONDS = 0.0005


@asynccontextmanager
async def lifespan(_app: st.App) -> AsyncIterator[None]:
    """Begins to load and yields at once: pages answer meanwhile and say what is loading."""
    config.set_option("logger.enableRich", False)  # it would print what an exception says, which may quote a prompt
    set_up_logging()
    asyncio.get_running_loop().set_exception_handler(task_failed)
    # With torch loaded, a collection after every run would stop every visitor for 60 to 160 ms.
    config.set_option("runner.postScriptGC", False)
    sys.setswitchinterval(SWITCH_SECONDS)
    models = shelf()
    housekeeping = asyncio.create_task(keep_house(models.wait_until_started))
    yield
    housekeeping.cancel()
    with suppress(asyncio.CancelledError):
        await housekeeping
    models.stop()
    await asyncio.to_thread(stop_engine)


async def keep_house(wait_until_loaded: Callable[[], None]) -> None:
    """Once the models are there, takes all that lives on out of the collector's sight; then tidies up on a timer."""
    await asyncio.to_thread(wait_until_loaded)
    gc.collect()
    gc.freeze()
    while True:
        await asyncio.sleep(COLLECTION_SECONDS)
        keeper().sweep()
        progress_keeper().sweep()
        sweep_engine()
        gc.collect()
        await asyncio.to_thread(hand_back)


app = st.App(
    Path(__file__).parent / "pages" / "frame.py",
    lifespan=lifespan,
    routes=api_routes(config.get_option("server.baseUrlPath")),
    on_script_error=apologise,
)
