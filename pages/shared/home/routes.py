"""The live run's route: a stream of its steps for everybody who watches the home page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from core.words import LANGUAGES
from pages.shared.home.live import LiveRun
from pages.shared.prompts import default_prompt
from pages.shared.resources import engine, limits, shelf
from pages.shared.stage_routes import STREAM_HEADERS, whole_number

MOST_NEW = 40
MOST_WATCHING = 500
"""Beyond these an answer that can be watched later is worth more than one that nobody gets in time."""
LOOK_AGAIN_SECONDS = 2


class LiveRuns:
    """The run that a page in a language shows. There are as many as there are prompts to open with."""

    def __init__(self) -> None:
        self._by_prompt: dict[tuple[str, str], LiveRun] = {}

    def run(self, language: str) -> LiveRun | None:
        """That of the model that serves, with the prompt it opens with; None while no model is there."""
        if shelf().loading or not shelf().usable:
            return None
        name = shelf().usable[0]
        key = name, default_prompt(name, language)
        if key not in self._by_prompt:
            self._by_prompt[key] = _live_run(*key)
        return self._by_prompt[key]


def live_routes(base: str) -> list[Route]:
    """The route under the server's base path."""
    runs = LiveRuns()

    async def live(request: Request) -> Response:
        language = request.query_params.get("language", "")
        run = runs.run(language if language in LANGUAGES else LANGUAGES[0])
        if run is None or run.n_watching >= MOST_WATCHING:
            later = {"Retry-After": str(LOOK_AGAIN_SECONDS), "Cache-Control": "no-store"}
            return JSONResponse({"error": "Nothing can be watched yet; ask again."}, status_code=503, headers=later)
        return Watched(run, whole_number(request, "run"), whole_number(request, "have"))

    return [Route(f"{base}/api/live", live, methods=["GET"])]


class Watched(StreamingResponse):
    """A run's frames to one who watches it, who counts from the first byte until the connection is gone."""

    def __init__(self, run: LiveRun, number: int, have: int) -> None:
        super().__init__(run.frames(number, have), media_type="application/octet-stream", headers=STREAM_HEADERS)
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, as Starlette asks a response to."""
        with self._run.watcher():
            await super().__call__(scope, receive, send)


def _live_run(name: str, prompt: str) -> LiveRun:
    """With the settings that page 1 opens with."""
    from core.engine.prefix import chunk_for  # these bring torch, which the model has brought by now
    from core.engine.recorder import RecordConfig
    from core.engine.run import RunConfig
    from pages.shared.started import Started

    model = shelf().ask(name).result()
    in_chat = model.chat_template is not None
    config = RunConfig(
        max_new=min(MOST_NEW, limits().new_tokens),
        prefill_chunk=chunk_for(model.device),
        record=RecordConfig(kv_norms=True),
    )
    started = Started(model=model, config=config, in_chat=in_chat, prompt=prompt)
    return LiveRun(engine(), started, model.prompt_ids(prompt, raw=not in_chat))
