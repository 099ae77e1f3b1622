"""Prompts to begin with: what each model continues well."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "assets" / "prompts.toml"


def examples(model_name: str, language: str) -> tuple[str, ...]:
    """A few prompts that this model continues well, for a page in this language."""
    known = _prompts()
    return tuple(known.get(model_name, known["other"])[language])


def default_prompt(model_name: str, language: str) -> str:
    """The prompt a page opens with."""
    return examples(model_name, language)[0]


def repeating_prompt(model_name: str) -> str:
    """A prompt whose answer repeats what is there already."""
    known = _prompts()["repeating"]
    return known.get(model_name, known["other"])[0]


@cache
def _prompts() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
