"""The home page's run: everybody sees the same steps, and they are the run's own; it stops when nobody watches."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.engine.engine import Engine
from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.refusal import Refusal
from pages.shared import wire
from pages.shared.home import routes
from pages.shared.home.live import TAG, LiveRun, Pace
from pages.shared.home.routes import MOST_WATCHING, live_routes
from pages.shared.resources import shelf
from pages.shared.shelf import Shelf
from pages.shared.started import Started
from tests.apart import apart
from tests.engines import PATIENCE

PROMPT, MAX_NEW = "床前明月光，", 6
QUICK = Pace(step=0.0, rest=0.2, stream=30.0, grace=0.05)
LONG = Pace(step=0.02, rest=0.2, stream=30.0, grace=0.05)
Frame = tuple[dict[str, Any], bytes]


def live_run(engine: Engine, pace: Pace = QUICK, *, max_new: int = MAX_NEW) -> LiveRun:
    model = shelf().ask("tiny").result()
    started = Started(
        model=model,
        config=RunConfig(max_new=max_new, record=RecordConfig(kv_norms=True)),
        in_chat=False,
        prompt=PROMPT,
    )
    return LiveRun(engine, started, model.prompt_ids(PROMPT), pace)


def read(streamed: bytes) -> Frame:
    (size,) = struct.unpack_from("<I", streamed)
    assert len(streamed) == 4 + size
    return wire.unpack(streamed[4:])


async def watch(run: LiveRun, number: int = -1, have: int = 0) -> list[Frame]:
    """A stream to its end."""
    with run.watcher():
        return [read(frame) async for frame in run.frames(number, have)]


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.005)


def steps(frames: list[Frame]) -> list[dict[str, Any]]:
    return [step for header, _ in frames for step in header["steps"]]


def cells(frames: list[Frame]) -> bytes:
    return b"".join(body for _, body in frames)


def without_times(step: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name not in ("model_s", "sampling_s")}


def test_what_is_watched_is_the_run(engine: Engine) -> None:
    frames = apart(watch(live_run(engine)))
    model = shelf().ask("tiny").result()
    config = RunConfig(max_new=MAX_NEW, record=RecordConfig(kv_norms=True))
    alone = Run(model, model.prompt_ids(PROMPT), config)
    for _ in generate(model, alone):
        pass
    expected = wire.run_header(Started(model=model, config=config, in_chat=False), alone.trace, 0, waiting_seconds=0.0)
    assert [without_times(step) for step in steps(frames)] == [without_times(step) for step in expected["steps"]]
    assert all(step["model_s"] > 0 for step in steps(frames))
    assert np.array_equal(np.frombuffer(cells(frames), np.uint8), np.frombuffer(wire.cells(alone.trace, 0), np.uint8))
    first, last = frames[0][0], frames[-1][0]
    assert first["prompt"] == expected["prompt"] and first["question"] == PROMPT
    assert first["most_columns"] == steps(frames)[-1]["n_tokens"]  # what the cache holds at the end
    assert first["again_s"] is None and 0 < last["again_s"] <= QUICK.rest and last["refused"] is None


def test_all_who_watch_see_the_same_and_who_comes_late_sees_all_of_it(engine: Engine) -> None:
    async def class_() -> tuple[list[Frame], list[Frame], list[Frame]]:
        run = live_run(engine, LONG)
        first = asyncio.create_task(watch(run))
        second = asyncio.create_task(watch(run))
        await until(lambda: run.n_watching == 2)
        with run.watcher():
            async with aclosing(run.frames(-1, 0)) as stream:  # type: ignore[type-var]
                async for frame in stream:
                    if read(frame)[0]["total"] >= 3:
                        break
        late = await watch(run, run.number - 1, 7)  # of a run that is over: as good as nothing
        return await first, await second, late

    first, second, late = apart(class_())
    assert steps(first) == steps(second) == steps(late) and len(steps(first)) == MAX_NEW
    assert cells(first) == cells(second) == cells(late)
    assert late[0][0]["total"] >= 3 and late[0][0]["start"] == 0
    assert len({header["run"] for header, _ in first + second + late}) == 1
    assert max(header["watching"] for header, _ in first) >= 2


def test_who_has_some_steps_gets_the_others(engine: Engine) -> None:
    async def goes_on() -> tuple[list[Frame], list[Frame]]:
        run = live_run(engine)
        return await watch(run), await watch(run, run.number, 4)

    all_, rest = apart(goes_on())
    assert steps(rest) == steps(all_)[4:] and rest[0][0]["start"] == 4
    assert cells(all_).endswith(cells(rest))


def test_it_stops_when_nobody_watches_and_its_cache_goes(engine: Engine) -> None:
    async def leaves() -> LiveRun:
        run = live_run(engine, LONG, max_new=500)
        with run.watcher():
            async with aclosing(run.frames(-1, 0)) as stream:  # type: ignore[type-var]
                async for _ in stream:
                    break
        assert run.is_running  # a moment's grace
        assert [seat.tag for seat in engine.status().seats] == [TAG]
        await until(lambda: not run.is_running)
        return run

    run = apart(leaves())
    assert run.n_watching == 0
    engine.submit(gc.collect).result(PATIENCE)
    assert engine.status().seats == () and engine.status().held_bytes == 0


def test_what_another_run_left_in_a_browser_is_nothing_of_this_one(engine: Engine) -> None:
    """Of the other language's prompt, or of the server before it was begun again: numbers do not meet."""

    async def other() -> tuple[int, list[Frame]]:
        before, after = live_run(engine), live_run(engine)
        await watch(before)
        return before.number, await watch(after, before.number, 4)

    number, frames = apart(other())
    assert frames[0][0]["start"] == 0 and frames[0][0]["run"] != number and len(steps(frames)) == MAX_NEW


def test_it_goes_on_from_stream_to_stream(engine: Engine) -> None:
    """A stream ends after a while, and the next one begins where it ended, in the same run."""

    async def streams() -> list[list[Frame]]:
        pace = Pace(step=0.02, rest=0.2, stream=0.05, grace=5.0)
        run, have = live_run(engine, pace, max_new=12), 0
        seen: list[list[Frame]] = []
        while not seen or seen[-1][-1][0]["again_s"] is None:
            if frames := await watch(run, run.number, have):
                seen.append(frames)
                have = frames[-1][0]["total"]
        return seen

    seen = apart(streams())
    assert len(seen) > 1 and len(steps([frame for frames in seen for frame in frames])) == 12
    assert len({header["run"] for frames in seen for header, _ in frames}) == 1


def test_the_next_run_begins_after_the_rest(engine: Engine) -> None:
    async def again() -> tuple[list[Frame], list[Frame], list[Frame]]:
        run = live_run(engine)
        first = await watch(run)
        during = await watch(run, run.number, MAX_NEW)
        await until(lambda: not run.is_running)
        return first, during, await watch(run, run.number, MAX_NEW)

    first, during, second = apart(again())
    number = first[0][0]["run"]
    assert steps(during) == [] and during[0][0]["run"] == number and during[0][0]["again_s"] <= first[-1][0]["again_s"]
    assert {header["run"] for header, _ in second} == {number + 1} and second[0][0]["start"] == 0
    assert list(map(without_times, steps(second))) == list(map(without_times, steps(first)))


def test_what_fails_is_a_sentence_and_is_tried_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> Any:
        raise Refusal("engine.stopped")

    async def fails_once() -> tuple[list[Frame], list[Frame]]:
        run = live_run(engine)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "step", refuses)
            failed = await watch(run)
        await until(lambda: not run.is_running)
        return failed, await watch(run)

    failed, after = apart(fails_once())
    (header, body), *more = failed
    assert not more and body == b"" and header["total"] == 0 and header["facts"] is None
    assert header["refused"] == {each: Refusal("engine.stopped").sentence(each) for each in ("zh", "en")}
    assert len(steps(after)) == MAX_NEW and after[-1][0]["refused"] is None


def test_a_server_that_stops_lets_it_end(engine: Engine) -> None:
    async def stops() -> list[Frame]:
        run = live_run(engine, Pace(step=0.01, rest=0.1, stream=0.5, grace=0.05), max_new=500)
        watched = asyncio.create_task(watch(run))
        await until(lambda: engine.status().seats)
        await asyncio.to_thread(engine.stop)
        return await asyncio.wait_for(watched, 10)

    assert apart(stops())


def test_what_ends_it_is_one_line_of_the_log(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """No task is left whose error nobody has seen: the collector would speak of it later, wherever it then is."""
    engine.stop()
    assert apart(watch(live_run(engine, Pace(step=0.0, rest=0.1, stream=0.2, grace=0.05)))) == []
    gc.collect()
    assert caplog.messages == ["The home page's run has ended: the engine has stopped."]
    assert [line.exc_info for line in caplog.records] == [None]


class Loading(Shelf):
    """One that does not get on."""

    @property
    def loading(self) -> list[str]:
        return ["smollm2"]


def test_the_route_streams_and_says_when_there_is_nothing_yet(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "engine", lambda: engine)
    monkeypatch.setattr(routes, "MOST_NEW", 3)
    with TestClient(Starlette(routes=live_routes("/lab"))) as client:
        with monkeypatch.context() as patch:
            patch.setattr(routes, "shelf", Loading)
            answer = client.get("/lab/api/live", params={"language": "en"})
            assert answer.status_code == 503 and answer.json()["error"] and answer.headers["retry-after"] == "2"
        for language in ("en", "zh", "<b>", ""):
            answer = client.get("/lab/api/live", params={"language": language, "run": "x", "have": "-7"})
            assert answer.status_code == 200 and answer.headers["content-encoding"] == "identity"
            (size,) = struct.unpack_from("<I", answer.content)
            header, _ = wire.unpack(answer.content[4 : 4 + size])
            assert header["visit"] == TAG and header["steps"][0]["phase"] == "prefill"


def test_too_many_are_asked_to_come_later(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = live_run(engine)
    crowded.n_watching = MOST_WATCHING
    monkeypatch.setattr(routes.LiveRuns, "run", lambda *_: crowded)
    assert TestClient(Starlette(routes=live_routes(""))).get("/api/live").status_code == 503
