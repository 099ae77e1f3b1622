"""The pages as a visitor meets them: through the frame, with the real models of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.engine import Engine
from pages.shared.resources import shelf

FRAME = Path(__file__).resolve().parents[2] / "pages" / "frame.py"
PREFILL_AND_DECODE = "1_prefill_and_decode.py"


@pytest.fixture(scope="session", autouse=True)
def models_loaded() -> None:
    shelf().wait_until_started()


@pytest.fixture
def chat_model() -> str:
    """A model with a chat template: ours has none, and set-up goes on without smollm2 where it cannot be fetched."""
    if shelf().problem("smollm2") is not None:
        pytest.skip("smollm2 could not be fetched at set-up; the app then runs on the tiny model, which does not chat")
    return "smollm2"


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine of the test's own."""
    worker = Engine(lambda: 2**30)
    yield worker
    worker.stop()


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """Opens a page in a session of its own: `open_page("en")`, `open_page("zh", "0_home.py")`."""

    def opened(language: str, page: str = PREFILL_AND_DECODE) -> AppTest:
        session = AppTest.from_file(str(FRAME), default_timeout=120)
        session.query_params["lang"] = language
        session.run()
        if page != "0_home.py":
            session.switch_page(page).run()
        assert not session.exception
        return session

    return opened
