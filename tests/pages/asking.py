"""Asking the app's routes, and nothing else of the app."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from pages.shared.routes import api_routes


@cache
def client(base: str = "") -> TestClient:
    """The routes alone; an exception inside them fails the test."""
    return TestClient(Starlette(routes=api_routes(base)))


def got(path: str, **words: object) -> Any:
    """The JSON of an answer that nobody may keep."""
    answer = client().get(path, params={name: str(word) for name, word in words.items()})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json" and answer.headers["cache-control"] == "no-store"
    return answer.json()
