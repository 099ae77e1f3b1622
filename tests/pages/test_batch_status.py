"""What the browser is told of the batch: everything the engine says about itself, nothing of what visitors wrote."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from core.engine.status import BatchPoint, Measuring, ModelStatus, Seat, Status
from core.words import LANGUAGES
from pages.shared.batch import status_json
from pages.shared.batch_routes import FRESH_SECONDS, News, batch_routes
from tests.pages.asking import got
from tests.statuses import alone, forty, seven

MEASURING = Measuring(name="context", n_done=2, n_points=20, n_waiting=3)
ANONYMOUS = {
    Seat: {"tag", "model", "doing", "n_tokens", "n_prefix", "kv_bytes", "held_bytes", "place", "tokens_per_s"},
    ModelStatus: {"model", "batch", "step_s", "tokens_per_s", "weight_bytes", "by_batch"},
    BatchPoint: {"batch", "n_passes", "step_s", "tokens_per_s"},
    Measuring: {"name", "n_done", "n_points", "n_waiting"},
    Status: {
        "seats", "models", "budget_bytes", "promised_bytes", "held_bytes", "n_queued", "n_restarts", "measuring",
    },
}  # fmt: skip


class Engine:
    """An engine whose status a test sets, and a clock that it turns."""

    def __init__(self) -> None:
        self.status, self.now, self.asked, self.fails = seven("me"), 100.0, 0, False

    def __call__(self) -> Status:
        self.asked += 1
        if self.fails:
            raise RuntimeError("the engine's thread is being begun again")
        return self.status

    def client(self, base: str = "") -> TestClient:
        return TestClient(Starlette(routes=batch_routes(base, News(self, lambda: self.now))))


@pytest.mark.parametrize("made", [alone("me"), seven("me"), forty("me"), replace(seven("me"), measuring=MEASURING)])
def test_the_json_is_the_status_with_nothing_left_out(made: Status) -> None:
    said = json.loads(json.dumps(status_json(made)))
    assert (
        Status(
            **said
            | {
                "seats": tuple(Seat(**seat) for seat in said["seats"]),
                "models": tuple(
                    ModelStatus(**model | {"by_batch": tuple(BatchPoint(**point) for point in model["by_batch"])})
                    for model in said["models"]
                ),
                "measuring": said["measuring"] and Measuring(**said["measuring"]),
            }
        )
        == made
    )


@pytest.mark.parametrize("kind", ANONYMOUS)
def test_nothing_else_can_come_to_be_sent(kind: type) -> None:
    """A new field is sent as well: whoever adds one finds this test, and thinks of the visitors."""
    assert {field.name for field in fields(kind)} == ANONYMOUS[kind]


def test_the_route_answers_under_the_base_path_and_nobody_keeps_it() -> None:
    engine = Engine()
    answer = engine.client("/lab").get("/lab/api/batch", headers={"Accept-Encoding": "identity"})
    assert answer.status_code == 200 and answer.json() == json.loads(json.dumps(status_json(engine.status)))
    assert answer.headers["content-type"] == "application/json" and answer.headers["cache-control"] == "no-store"
    assert "content-encoding" not in answer.headers
    assert engine.client("/lab").get("/api/batch").status_code == 404
    assert engine.client("/lab").post("/lab/api/batch").status_code == 405


def test_what_is_packed_is_the_same() -> None:
    engine = Engine()
    client = engine.client()
    packed = client.get("/api/batch", headers={"Accept-Encoding": "gzip"})
    plain = client.get("/api/batch", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and packed.json() == plain.json()
    assert len(gzip.compress(plain.content)) < len(plain.content) / 3 and engine.asked == 1


def test_the_engine_is_asked_once_a_second_however_many_ask() -> None:
    engine = Engine()
    client = engine.client()
    first = [client.get("/api/batch").json() for _ in range(50)]
    assert engine.asked == 1 and all(said == first[0] for said in first)
    engine.status = alone("me")
    engine.now += 0.99 * FRESH_SECONDS
    assert client.get("/api/batch").json() == first[0] and engine.asked == 1
    engine.now += 0.02 * FRESH_SECONDS
    assert len(client.get("/api/batch").json()["seats"]) == 1 and engine.asked == 2


def test_a_status_that_cannot_be_had_is_asked_for_again() -> None:
    engine = Engine()
    client = engine.client()
    before = client.get("/api/batch").json()
    engine.fails, engine.now = True, engine.now + FRESH_SECONDS
    with pytest.raises(RuntimeError):
        client.get("/api/batch")
    engine.fails = False
    assert client.get("/api/batch").json() == before and engine.asked == 3


def test_the_app_has_the_route() -> None:
    assert set(got("/api/batch")) == ANONYMOUS[Status]


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_1_shows_it_and_says_who_looks(open_page: Callable[..., AppTest], language: str) -> None:
    session = open_page(language)
    (shown,) = (each for each in session.get("bidi_component") if each.proto.component_name.endswith("tbt_batch"))
    said = json.loads(shown.proto.json)
    assert said["language"] == language and said["units"] == "binary" and said["tag"]
    assert session.session_state["visit"].key not in shown.proto.json
