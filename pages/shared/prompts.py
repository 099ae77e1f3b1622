"""Prompts to begin with: what each model continues well, and the language that it is to be spoken to in."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "assets" / "prompts.toml"


def examples(model_name: str, language: str) -> tuple[str, ...]:
    """A few prompts that this model continues well, for a page in this language."""
    return tuple(_of_model(model_name)[spoken(model_name, language)])


def spoken(model_name: str, language: str) -> str:
    """The language to speak to a model in: the page's, or its own where it does not speak the page's."""
    known = _of_model(model_name)
    return language if language in known else next(iter(known))


def default_prompt(model_name: str, language: str) -> str:
    """The prompt a page opens with."""
    return examples(model_name, language)[0]


def repeating_prompt(model_name: str) -> str:
    """A prompt whose answer repeats what is there already."""
    known = _prompts()["repeating"]
    return known.get(model_name, known["other"])[0]


def _of_model(model_name: str) -> dict[str, list[str]]:
    known = _prompts()
    return known.get(model_name, known["other"])


@cache
def _prompts() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
