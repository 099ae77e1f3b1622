"""The live routes of the estimate pages: all figures at one point, and the moving part of a chart.

A question costs some hundred microseconds and is answered on the event loop; what is absurd is 422 with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.query import asked
from core.estimate.where import where_json
from core.refusal import Refusal
from core.words import LANGUAGES
from pages.shared.charts import CHARTS, formulas, say_in
from pages.shared.figures.chart import Say, live_part
from pages.shared.units import UNITS

# Words about the answer, not about the model.
_HOW = ("lang", "units", "figures")
MOST_QUERY = 2000


def costs_routes(base: str) -> list[Route]:
    """The routes under the server's base path."""
    return [
        Route(f"{base}/api/estimate", _answered(lambda made, _: estimate_json(made)), methods=["GET"]),
        Route(f"{base}/api/curves/where", _answered(lambda made, _: where_answer(made)), methods=["GET"]),
        Route(f"{base}/api/curves/formulas", _answered(_formulas), methods=["GET"]),
        Route(f"{base}/api/curves/{{name}}", _answered(_curves), methods=["GET"]),
    ]


def where_answer(made: Estimate) -> dict[str, Any]:
    """The estimate's figures and page 4's, for cards that show both."""
    return estimate_json(made) | where_json(made)


def _answered(answer: Callable[[Estimate, Request], dict[str, Any]]) -> Callable[[Request], Any]:
    async def answered(request: Request) -> JSONResponse:
        if request.path_params.get("name", "formulas") not in ("formulas", *CHARTS):
            return JSONResponse({"error": "There is no such route."}, status_code=404)
        try:
            found = answer(estimate(*asked(_words(request))), request)
        except Refusal as refusal:
            said = refusal.sentence(_language(request))
            return JSONResponse({"error": said}, status_code=422, headers={"Cache-Control": "no-store"})
        return JSONResponse(found, headers={"Cache-Control": "no-store"})

    return answered


def _words(request: Request) -> dict[str, str]:
    """The words of the question, each said once. Raises Refusal."""
    if len(request.url.query) > MOST_QUERY:
        raise Refusal("estimate.query_too_long", most=MOST_QUERY)
    words: dict[str, str] = {}
    for name, word in request.query_params.multi_items():
        if name in words:
            raise Refusal("estimate.query_twice", name=name[:40])
        words[name] = word
    return {name: word for name, word in words.items() if name not in _HOW}


def _curves(made: Estimate, request: Request) -> dict[str, Any]:
    chart = CHARTS[request.path_params["name"]]
    return live_part(chart(made, _say(request)))


def _formulas(made: Estimate, request: Request) -> dict[str, Any]:
    wanted = request.query_params.get("figures", "").split(",")
    return {"formulas": formulas(made, wanted[:20], _language(request))}


def _say(request: Request) -> Say:
    units = request.query_params.get("units")
    return say_in(_language(request), units if units in UNITS else UNITS[0])


def _language(request: Request) -> str:
    language = request.query_params.get("lang")
    return language if language in LANGUAGES else "en"
