"""The words of the app: one catalogue per language under assets/words, one file per area.

`sentence("model.unknown_architecture", "zh", architecture="gpt2")` takes the key `unknown_architecture` from
assets/words/zh/model.toml and fills in the values. A test holds that the languages have the same keys and placeholders.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

LANGUAGES = ("zh", "en")
WORDS_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "words"


@cache
def catalogue(language: str) -> dict[str, str]:
    """All words of a language as {"area.key": text}."""
    words: dict[str, str] = {}
    for file in sorted((WORDS_FOLDER / language).glob("*.toml")):
        for key, text in tomllib.loads(file.read_text(encoding="utf-8")).items():
            words[f"{file.stem}.{key}"] = text
    return words


def sentence(key: str, language: str, **values: object) -> str:
    """The text of `key` with its placeholders filled. An unknown key is a programming error: KeyError."""
    return catalogue(language)[key].format(**values)
