"""app.py as a server: under streamlit's own start with a base path, and under a plain ASGI server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit import config

import app
from tests.apart import apart
from tests.engines import PATIENCE
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """Starts `python -m command` with {port} filled in; ends it by its process id."""
    port = str(free_port())
    arguments = [sys.executable, "-m", *(part.replace("{port}", port) for part in command)]
    environment = {**os.environ, "TBT_DTYPE": "f32"}
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answer(url: str, seconds: float = PATIENCE) -> tuple[int, bytes]:
    """Status and body, as soon as the server listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("base", "command"),
    [
        ("", ("uvicorn", "app:app", "--port", "{port}")),
        ("/lab", ("streamlit", "run", "app.py", "--server.port={port}", "--server.baseUrlPath=lab")),
    ],
)
def test_routes_and_pages_answer_while_models_load(base: str, command: tuple[str, ...]) -> None:
    with serving(*command) as address:
        status, body = answer(f"{address}{base}/api/ready")
        assert status in (200, 503) and set(json.loads(body)) >= {"ready", "loading", "models", "serving", "missing"}
        status, body = answer(f"{address}{base}/api/unknown")
        assert status == 404 and json.loads(body)["error"]
        status, body = answer(f"{address}{base}/prefill_and_decode")
        assert status == 200 and b"<html" in body
        assert answer(f"{address}{base}/_stcore/health")[0] == 200


def test_the_lifespan_yields_at_once_and_keeps_the_collector_out_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Models:
        stopped = started_at = 0.0

        def wait_until_started(self) -> None:
            loaded.wait(PATIENCE)

        def stop(self) -> None:
            self.stopped = time.monotonic()

    loaded = threading.Event()
    models, switches_after = Models(), sys.getswitchinterval()
    monkeypatch.setattr(app, "shelf", lambda: models)
    monkeypatch.setattr(app, "set_up_logging", lambda: None)  # it would hold for all tests that follow
    config.set_option("runner.postScriptGC", True)

    async def live() -> None:
        async with app.lifespan(app.app):
            assert not loaded.is_set()  # it yielded while the models were still to come
            assert config.get_option("runner.postScriptGC") is False
            frozen = gc.get_freeze_count()
            loaded.set()
            async with asyncio.timeout(PATIENCE):
                while gc.get_freeze_count() <= frozen:
                    await asyncio.sleep(0.01)

    try:
        apart(live())
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switches_after)
    assert models.stopped
