"""Loading once, what is said meanwhile and when a model is missing, and the routes under /api."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.model.load import LanguageModel
from core.refusal import Refusal
from pages.shared import resources, routes
from pages.shared.bundle import bundle
from pages.shared.shelf import Shelf, operator_models
from tests.engines import PATIENCE, wait_until


class Loader:
    """Stands in for loading: counts, waits for leave, and refuses what is missing."""

    def __init__(self, missing: tuple[str, ...] = (), broken: tuple[str, ...] = ()) -> None:
        self.missing, self.broken = missing, broken
        self.calls: list[str] = []
        self.leave = threading.Event()

    def __call__(self, name: str) -> Any:
        self.calls.append(name)
        assert self.leave.wait(PATIENCE)
        if name in self.missing:
            raise Refusal("engine.smollm2_missing")
        if name in self.broken:
            raise OSError("/secret/path is unreadable")
        return object()


def shelf_with(loader: Callable[[str], LanguageModel], extra: list[str] | None = None) -> Shelf:
    return Shelf(loader, lambda: extra or [])


def client_of(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, base: str = "") -> TestClient:
    monkeypatch.setattr(routes, "shelf", lambda: shelf)
    return TestClient(Starlette(routes=routes.api_routes(base)))


def test_a_model_is_loaded_once_however_many_ask() -> None:
    loader = Loader()
    shelf = shelf_with(loader, ["mine"])
    threads = [threading.Thread(target=lambda: shelf.ask("mine")) for _ in range(20)]
    for thread in threads:
        thread.start()
    loader.leave.set()
    for thread in threads:
        thread.join()
    shelf.ask("mine").result(PATIENCE)
    assert loader.calls == ["mine"]
    assert resources.shelf() is resources.shelf()


def test_a_server_that_stops_while_it_loads_leaves_nobody_waiting() -> None:
    calls: list[str] = []

    def until_given_up(name: str) -> Any:
        calls.append(name)
        wait_until(shelf.ask("tiny").cancelled)
        return object()

    shelf = shelf_with(until_given_up)
    shelf.start()
    wait_until(lambda: bool(calls))
    waiting = threading.Thread(target=shelf.wait_until_started, daemon=True)
    waiting.start()
    shelf.stop()
    waiting.join(PATIENCE)
    assert not waiting.is_alive() and calls == ["smollm2"]


def test_ready_says_what_is_loading_and_then_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader()
    shelf = shelf_with(loader)
    shelf.start()
    client = client_of(shelf, monkeypatch)
    answer = client.get("/api/ready")
    assert answer.status_code == 503 and answer.json()["loading"] == ["smollm2", "tiny"]
    loader.leave.set()
    shelf.wait_until_started()
    answer = client.get("/api/ready")
    assert answer.status_code == 200
    assert answer.json() == {
        "ready": True, "loading": [], "models": ["smollm2", "tiny"], "serving": "smollm2", "missing": {},
    }  # fmt: skip


def test_without_smollm2_the_tiny_model_serves_and_ready_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(missing=("smollm2",))
    loader.leave.set()
    shelf = shelf_with(loader)
    shelf.wait_until_started()
    answer = client_of(shelf, monkeypatch).get("/api/ready")
    assert answer.status_code == 200
    assert answer.json()["serving"] == "tiny" and "smollm2" in answer.json()["missing"]["smollm2"]


def test_a_broken_model_shows_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(broken=("smollm2", "tiny"))
    loader.leave.set()
    shelf = shelf_with(loader)
    shelf.wait_until_started()
    answer = client_of(shelf, monkeypatch).get("/api/ready")
    assert answer.status_code == 503 and not answer.json()["ready"] and "secret" not in answer.text


@pytest.mark.parametrize("base", ["", "lab", "/a/b/"])
@pytest.mark.parametrize("path", ["/api", "/api/", "/api/nothing", "/api/ready/x"])
def test_unknown_paths_are_answered_in_json(monkeypatch: pytest.MonkeyPatch, base: str, path: str) -> None:
    client = client_of(shelf_with(Loader()), monkeypatch, base)
    prefix = f"/{base.strip('/')}".rstrip("/")
    for answer in (client.get(prefix + path), client.post(prefix + path)):
        assert answer.status_code == 404 and answer.json()["error"]


def test_the_operators_models_are_listed_by_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.gguf").touch()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "config.json").touch()
    (tmp_path / "notes.txt").touch()
    monkeypatch.setenv("TBT_MODELS", str(tmp_path))
    assert operator_models() == ["one.gguf", "two"]
    monkeypatch.setenv("TBT_MODELS", str(tmp_path / "missing"))
    assert operator_models() == []


@pytest.mark.parametrize("base", ["", "/lab"])
def test_the_stages_files_are_served_once_and_for_long(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    client = client_of(shelf_with(Loader()), monkeypatch, base)
    for name, file in bundle().files.items():
        path = f"{base}/{bundle().path}/{name}"
        packed = client.get(path, headers={"Accept-Encoding": "gzip"})
        assert packed.content == file.body and packed.headers["content-encoding"] == "gzip"
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        assert plain.content == file.body and "content-encoding" not in plain.headers
        assert "immutable" in plain.headers["cache-control"] and plain.headers["content-type"] == file.media_type
    assert {"stage/main.js", "stage/words/zh.json", "costs/main.js", "costs/words/en.json"} <= bundle().files.keys()


@pytest.mark.parametrize(
    "path", ["assets/0000/stage/main.js", "assets/{v}/stage/nothing.js", "assets/{v}/../app.py", "assets/{v}/words"]
)
def test_a_file_that_is_not_the_stages_is_not_there(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    answer = client_of(shelf_with(Loader()), monkeypatch).get(f"/{path.format(v=bundle().version)}")
    assert answer.status_code == 404 and "immutable" not in answer.headers.get("cache-control", "")
