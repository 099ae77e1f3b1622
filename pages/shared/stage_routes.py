"""What the stage asks past Streamlit's reruns: steps as a stream, attention of any layer and head, a cell's vectors.

Each request names its visit in a header, never in an address; the name is random and only its own tab knows it. The
engine's thread answers, as it does everything that touches a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pages.shared.resources import engine, keeper

if TYPE_CHECKING:
    from core.engine.run import Run
    from pages.shared.changes import Shown
    from pages.shared.started import Slot
    from pages.shared.visit import Visit

VISIT_HEADER = "X-TBT-Visit"
# Nothing on the way may keep a stream back: no compression, no buffering proxy.
STREAM_HEADERS = {"Cache-Control": "no-store", "Content-Encoding": "identity", "X-Accel-Buffering": "no"}
FASTEST = 60
Answer = Callable[[Request, "Visit", "Slot"], Awaitable[Response]]


def stage_routes(base: str) -> list[Route]:
    """The routes under the server's base path."""
    answers = {"attention": attention, "vectors": vectors, "play": play}
    return [Route(f"{base}/api/stage/{name}", _of_a_visit(answer), methods=["GET"]) for name, answer in answers.items()]


async def attention(request: Request, visit: Visit, slot: Slot) -> Response:
    """Attention of a step's newest position, two bytes a weight: [n] of a layer and head, [L, n] for layer −1.

    Head −1 is the mean over the heads. A layer and head that are asked for become the ones that later steps come with.
    """
    step, layer, head = (whole_number(request, name) for name in ("step", "layer", "head"))

    def look(run: Run) -> bytes | None:
        config = run.model.config
        if not (0 <= step < len(run.steps) and -1 <= layer < config.n_layers and -1 <= head < config.n_heads):
            return None
        from pages.shared import wire  # brings torch: the server starts without it

        if layer >= 0 and head >= 0:
            visit.focus = layer, head
        layers = range(config.n_layers) if layer < 0 else [layer]
        rows = [run.attention(step, each, max(head, 0)) for each in layers]
        if visit.focus == (layer, head) and step == len(run.steps) - 1:
            visit.newest_attention = rows[0]
        return b"".join(wire.weights(row.weights if head >= 0 else row.mean_over_heads) for row in rows)

    found = await asyncio.wrap_future(visit.look(engine(), slot, look))
    return _missing() if found is None else Response(found, media_type="application/octet-stream", headers=_NO_STORE)


async def vectors(request: Request, visit: Visit, slot: Slot) -> Response:
    """The K and V vectors of a cell as JSON: {"k": [d_h numbers], "v": [...], "dtype": ...}."""
    position, layer, head = (whole_number(request, name) for name in ("position", "layer", "head"))

    def look(run: Run) -> dict[str, Any] | None:
        config, cache = run.model.config, run.cache
        inside = 0 <= layer < config.n_layers and 0 <= head < config.n_kv_heads
        if cache is None or not inside or not 0 <= position < cache.n_tokens:
            return None
        pair = (cache.keys(layer)[head, position], cache.values(layer)[head, position])
        key, value = (vector.float().tolist() for vector in pair)
        return {"k": key, "v": value, "dtype": run.model.dtype_name}

    found = await asyncio.wrap_future(visit.look(engine(), slot, look))
    return _missing() if found is None else JSONResponse(found, headers=_NO_STORE)


async def play(request: Request, visit: Visit, slot: Slot) -> Response:
    """Steps as they are made (`most` of them), each as the length of its frame (uint32, little endian) and the frame.

    Ends with the run, with a click that changes it, and when the visitor closes the stream: within one step.
    """
    speed, most = min(FASTEST, max(1, whole_number(request, "speed"))), whole_number(request, "most")
    have = max(0, whole_number(request, "have"))
    stream = visit.open_stream(whole_number(request, "seen"))
    steps = _steps(visit, slot, stream, have, 1 / speed, most if most > 0 else None)
    return StreamingResponse(steps, media_type="application/octet-stream", headers=STREAM_HEADERS)


async def _steps(
    visit: Visit, slot: Slot, stream: int, have: int, seconds_a_step: float, most: int | None
) -> AsyncIterator[bytes]:
    from pages.shared import wire  # brings torch: the server starts without it

    due, n_made = time.monotonic(), 0
    asked = visit.play_on(engine(), slot, stream)
    while shown := await _shown(asked):
        n_made += 1
        due += seconds_a_step
        goes_on, is_late = n_made != most, due <= time.monotonic()
        if goes_on and is_late:  # asked for before the frame is made, so that it shares the next pass with the others
            asked = visit.play_on(engine(), slot, stream)
        frame = wire.stream_frame(visit.key, shown, min(have, len(shown.trace.steps)))
        have = len(shown.trace.steps)
        visit.arrived = shown.run_number, have
        yield wire.in_stream(frame)
        if not goes_on:
            return
        if is_late:
            due = time.monotonic()
        else:
            await asyncio.sleep(due - time.monotonic())
            asked = visit.play_on(engine(), slot, stream)


async def _shown(asked: Future[Shown | None]) -> Shown | None:
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        if asked.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
            return None  # the stream was halted while its step waited
        raise


def _of_a_visit(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        found = keeper().here(request.headers.get(VISIT_HEADER, ""))
        return _missing() if found is None else await answer(request, *found)

    return answered


def whole_number(request: Request, name: str) -> int:
    """A whole number of the query; what is none is −2, which nothing has."""
    text = request.query_params.get(name, "")
    return int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 9 else -2


def _missing() -> JSONResponse:
    return JSONResponse({"error": "There is no such run here, or nothing at this place of it."}, status_code=404)


_NO_STORE = {"Cache-Control": "no-store"}
