"""The components' JavaScript and words, as the app serves them: under a path that changes with their content.

A browser may keep what lies there for a year; a changed file has another address. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from core.words import LANGUAGES, catalogue

ASSETS = Path(__file__).resolve().parents[2] / "assets"
# Folder of modules → the area of the word catalogue that they show, besides what figures are called.
AREAS = {
    "stage": "stage.",
    "costs": "costs.",
    "batch": "batch.",
    "drawn": "drawn.",
    "flash": "flash.",
    "live": "live.",
    "remembered": "remembered.",
}
FIGURES = "derivations.figure_"


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent: gzipped once, not for every visitor."""

    media_type: str
    body: bytes
    gzipped: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """All files by name, and the hash of them all."""

    version: str
    files: dict[str, File]

    @property
    def path(self) -> str:
        """Where they lie under the server's base path."""
        return f"assets/{self.version}"


@cache
def bundle() -> Bundle:
    """The modules of each folder and, per language, the words they show."""
    bodies: dict[str, bytes] = {}
    for folder, area in AREAS.items():
        bodies |= {f"{folder}/{file.name}": file.read_bytes() for file in sorted((ASSETS / folder).glob("*.js"))}
        for language in LANGUAGES:
            shown = (key for key in catalogue(language) if key.startswith((area, FIGURES)))
            words = {key.split(".", 1)[1]: catalogue(language)[key] for key in shown}
            bodies[f"{folder}/words/{language}.json"] = json.dumps(words, ensure_ascii=False).encode()
    digest = hashlib.sha256()
    for name, body in bodies.items():
        digest.update(f"{name} {len(body)} ".encode() + body)
    return Bundle(digest.hexdigest()[:16], {name: _file(name, body) for name, body in bodies.items()})


@cache
def plotly_js() -> Bundle:
    """plotly.js as the installed package brings it, under its version; packed when the first chart asks for it."""
    installed = distribution("plotly")  # found without importing it, which takes half a second
    body = Path(str(installed.locate_file("plotly/package_data/plotly.min.js"))).read_bytes()
    return Bundle(f"plotly-{installed.version}", {"plotly.min.js": _file("plotly.min.js", body)})


def _file(name: str, body: bytes) -> File:
    media_type = "text/javascript" if name.endswith(".js") else "application/json"
    return File(f"{media_type}; charset=utf-8", body, gzip.compress(body, mtime=0))
