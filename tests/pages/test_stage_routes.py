"""The stage's own routes: a header names the visit, answers are the run's own numbers, streams end when they should."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.engine.engine import Engine
from core.engine.recorder import RecordConfig
from core.engine.run import RunConfig
from core.model.load import LanguageModel
from pages.shared import stage_routes, wire
from pages.shared.keep import Keeper
from pages.shared.resources import shelf
from pages.shared.routes import api_routes
from pages.shared.started import Slot, Started
from pages.shared.visit import Visit

RECORD = RecordConfig(candidates=4, kv_norms=True, queries=True)


class Place:
    """A visitor who is here, with a run of some steps, and somebody who asks the routes."""

    def __init__(self, engine: Engine, patch: pytest.MonkeyPatch, *, use_cache: bool = True) -> None:
        self.keeper, self.engine, self.visit, self.slot = Keeper(), engine, Visit(), Slot()
        patch.setattr(stage_routes, "keeper", lambda: self.keeper)
        patch.setattr(stage_routes, "engine", lambda: engine)
        model: LanguageModel = shelf().loaded[-1]
        config = RunConfig(record=RECORD, use_cache=use_cache, max_new=12)
        started = Started(model=model, config=config, in_chat=False, prompt="床前明月光，")
        self.visit.prefill(engine, self.slot, started, self.visit.version)
        for _ in range(2):
            assert self.visit.settle()
            self.visit.decode(engine, self.slot, self.visit.version)
        assert self.visit.settle()
        self.keeper.hold(self.visit, self.slot, {})
        self.client = TestClient(Starlette(routes=api_routes("/lab")))

    def get(self, name: str, *, visit: str | None = None, **values: Any) -> Any:
        headers = {stage_routes.VISIT_HEADER: self.visit.key if visit is None else visit}
        return self.client.get(f"/lab/api/stage/{name}", params=values, headers=headers)

    def play(self, **values: Any) -> list[tuple[dict[str, Any], bytes]]:
        """All frames of a stream, which ends by itself."""
        body, frames = self.get("play", speed=60, **values).content, []
        while body:
            size = struct.unpack_from("<I", body)[0]
            frames.append(wire.unpack(body[4 : 4 + size]))
            body = body[4 + size :]
        return frames


@pytest.fixture
def place(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(engine, monkeypatch)


def test_attention_of_any_layer_and_head_of_any_step(place: Place) -> None:
    run = place.slot.run
    assert run is not None
    config = run.model.config
    for step, event in enumerate(run.steps):
        for layer in range(config.n_layers):
            answer = place.get("attention", step=step, layer=layer, head=1)
            weights = np.frombuffer(answer.content, "<u2") / 65_535
            assert answer.status_code == 200 and len(weights) == event.n_tokens
            assert np.abs(weights - run.attention(step, layer, 1).weights).max() < 1e-5
    whole = np.frombuffer(place.get("attention", step=2, layer=-1, head=-1).content, "<u2").reshape(config.n_layers, -1)
    assert np.abs(whole[3] / 65_535 - run.attention(2, 3, 0).mean_over_heads).max() < 1e-5


def test_what_is_asked_for_comes_with_the_next_steps(place: Place) -> None:
    place.get("attention", step=0, layer=3, head=2)
    place.visit.decode(place.engine, place.slot, place.visit.version)
    assert place.visit.settle() and place.visit.newest_attention is not None
    assert (place.visit.newest_attention.layer, place.visit.newest_attention.head) == (3, 2)


def test_the_vectors_of_a_cell_are_those_in_the_cache(place: Place) -> None:
    run = place.slot.run
    assert run is not None and run.cache is not None
    for position in (0, run.cache.n_tokens - 1):
        answer = place.get("vectors", position=position, layer=2, head=1).json()
        assert answer["k"] == run.cache.keys(2)[1, position].float().tolist()
        assert answer["v"] == run.cache.values(2)[1, position].float().tolist()
        assert answer["dtype"] == run.model.dtype_name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("attention", {"step": 3, "layer": 0, "head": 0}),
        ("attention", {"step": -1, "layer": 0, "head": 0}),
        ("attention", {"step": 0, "layer": 99, "head": 0}),
        ("attention", {"step": 0, "layer": 0, "head": "٣"}),
        ("attention", {}),
        ("vectors", {"position": 10**9, "layer": 0, "head": 0}),
        ("vectors", {"position": 0, "layer": 0, "head": 2}),
        ("vectors", {"position": "1e1", "layer": 0, "head": 0}),
    ],
)
def test_a_place_that_is_not_there_is_not_found(place: Place, name: str, values: dict[str, Any]) -> None:
    answer = place.get(name, **values)
    assert answer.status_code == 404 and answer.json()["error"]


@pytest.mark.parametrize("name", ["attention", "vectors", "play"])
def test_only_who_knows_the_name_of_a_visit_gets_an_answer(place: Place, name: str) -> None:
    where = {"step": 0, "layer": 0, "head": 0, "position": 0, "seen": place.visit.version, "have": 3}
    for visit in ("", "guessed", place.visit.key + "x"):
        assert place.get(name, visit=visit, **where).status_code == 404
    place.keeper.left(place.visit.key, place.slot)
    assert place.get(name, **where).status_code == 404
    assert len(place.visit.trace.steps if place.visit.trace else ()) == 3


def test_a_stream_goes_to_the_end_of_the_run_a_step_a_frame(place: Place) -> None:
    frames = place.play(seen=place.visit.version, have=3)
    trace = place.visit.trace
    assert trace is not None and trace.stopped is not None and len(frames) == len(trace.steps) - 3
    for number, (header, body) in enumerate(frames, start=3):
        assert (header["start"], header["total"], len(header["steps"])) == (number, number + 1, 1)
        assert header["steps"][0]["token"][0] == trace.output_ids[number] and header["attention"]["step"] == number
        n_cells = len(body) - 2 * header["steps"][0]["n_tokens"]
        assert body[:n_cells] == wire.cells(trace, number)[:n_cells]
    assert [header["version"] for header, _ in frames] == list(range(4, 4 + len(frames)))
    assert place.visit.arrived == (1, len(trace.steps))


def test_a_stream_for_an_older_screen_or_of_an_ended_run_is_empty(place: Place) -> None:
    assert place.play(seen=place.visit.version - 1, have=3) == []
    assert place.play(seen=place.visit.version, have=3)
    assert place.play(seen=place.visit.version, have=3) == []


def test_what_a_streamed_step_weighs_grows_by_its_row_of_attention_alone(place: Place) -> None:
    frames = place.play(seen=place.visit.version, have=3)
    for header, body in frames:
        facts = header["facts"]
        assert len(body) == 2 * facts["n_layers"] * facts["n_kv_heads"] + 2 * header["steps"][0]["n_tokens"]


def test_a_halt_ends_the_stream_after_the_step_under_way(place: Place) -> None:
    stream = place.visit.open_stream(place.visit.version)
    assert place.visit.play_on(place.engine, place.slot, stream).result()
    place.visit.halt()
    assert not place.visit.play_on(place.engine, place.slot, stream).result()
    assert place.visit.trace is not None and len(place.visit.trace.steps) == 4


def test_without_a_cache_there_is_nothing_to_look_at(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(engine, monkeypatch, use_cache=False)
    assert place.get("attention", step=0, layer=0, head=0).status_code == 404
    assert place.get("vectors", position=0, layer=0, head=0).status_code == 404
    frames = place.play(seen=place.visit.version, have=3)
    assert frames and all("attention" not in header for header, _ in frames)
