"""The components' JavaScript and words, as the app serves them: under a path that changes with their content.

A browser may keep what lies there for a year; a changed file has another address. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from core.words import LANGUAGES, catalogue

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "stage"
# The stage's own words, and what its figures are called in the dialogs that they open.
AREA, FIGURES = "stage.", "derivations.figure_"


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
    """The modules of assets/stage and, per language, the words they show."""
    bodies = {file.name: file.read_bytes() for file in sorted(FOLDER.glob("*.js"))}
    for language in LANGUAGES:
        words = {
            key.split(".", 1)[1]: text for key, text in catalogue(language).items() if key.startswith((AREA, FIGURES))
        }
        bodies[f"words/{language}.json"] = json.dumps(words, ensure_ascii=False).encode()
    digest = hashlib.sha256()
    for name, body in bodies.items():
        digest.update(f"{name} {len(body)} ".encode() + body)
    return Bundle(digest.hexdigest()[:16], {name: _file(name, body) for name, body in bodies.items()})


def _file(name: str, body: bytes) -> File:
    media_type = "text/javascript" if name.endswith(".js") else "application/json"
    return File(f"{media_type}; charset=utf-8", body, gzip.compress(body, mtime=0))
