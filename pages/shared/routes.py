"""The app's own routes: /api in JSON, also for unknown paths (Streamlit has a page for these), and /assets."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pages.shared.batch_routes import batch_routes
from pages.shared.bundle import File, bundle, plotly_js
from pages.shared.costs_routes import costs_routes
from pages.shared.home.routes import live_routes
from pages.shared.resources import metrics, shelf
from pages.shared.shelf import REAL_MODEL, SMALL_MODEL, Shelf
from pages.shared.stage_routes import stage_routes

ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def api_routes(base_path: str) -> list[Route]:
    """All routes, under the path the operator serves the app from: Streamlit mounts only its own there."""
    base = f"/{base_path.strip('/')}".rstrip("/")
    return [
        Route(f"{base}/api/ready", ready, methods=["GET"]),
        Route(f"{base}/api/metrics", scraped, methods=["GET"]),
        Route(f"{base}/assets/{{version}}/plotly.min.js", plotly, methods=["GET", "HEAD"]),
        Route(f"{base}/assets/{{version}}/{{name:path}}", asset, methods=["GET", "HEAD"]),
        *batch_routes(base),
        *stage_routes(base),
        *costs_routes(base),
        *live_routes(base),
        Route(f"{base}/api/{{path:path}}", unknown, methods=ALL_METHODS),
        Route(f"{base}/api", unknown, methods=ALL_METHODS),
    ]


async def ready(_request: Request) -> JSONResponse:
    """200 when a model can answer, 503 while none can."""
    content = readiness(shelf())
    return JSONResponse(content, status_code=200 if content["ready"] else 503, headers={"Cache-Control": "no-store"})


async def scraped(request: Request) -> Response:
    """The server's figures for Prometheus, in the text form it asks for."""
    body, content_type = metrics().text(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def asset(request: Request) -> Response:
    """A file of the present bundle. One of an older bundle is gone: its page is older than this server."""
    files = bundle().files if request.path_params["version"] == bundle().version else {}
    file = files.get(request.path_params["name"])
    if file is None:
        return await unknown(request)
    return _sent(request, file)


async def plotly(request: Request) -> Response:
    """plotly.js out of the installed package, for pages with charts."""
    if request.path_params["version"] != plotly_js().version:
        return await unknown(request)
    return _sent(request, plotly_js().files["plotly.min.js"])


def _sent(request: Request, file: File) -> Response:
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.body, media_type=file.media_type, headers=headers)
    return Response(file.gzipped, media_type=file.media_type, headers=headers | {"Content-Encoding": "gzip"})


async def unknown(_request: Request) -> JSONResponse:
    """404 for everything else."""
    return JSONResponse({"error": "There is no such route."}, status_code=404)


def readiness(models: Shelf) -> dict[str, Any]:
    """What is loaded, what is still loading, and what is missing, with the reason."""
    missing = {name: models.problem(name) for name in (REAL_MODEL, SMALL_MODEL)}
    usable, loading = models.usable, models.loading
    return {
        "ready": bool(usable) and not loading,
        "loading": loading,
        "models": usable,
        "serving": usable[0] if usable else None,
        "missing": {name: str(problem) for name, problem in missing.items() if problem},
    }
