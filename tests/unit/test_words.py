"""Every sentence exists in both languages, fits the code that fills it in, and lives in the catalogue alone."""

from __future__ import annotations

import ast
import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.refusal import Refusal
from core.words import LANGUAGES, WORDS_FOLDER, catalogue, sentence

ROOT = Path(__file__).resolve().parents[2]
CJK = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


def source_files() -> list[Path]:
    """All code of the app that lies outside assets."""
    folders = [ROOT / name for name in ("core", "pages", "tools")]
    return sorted([ROOT / "app.py", *(file for folder in folders for file in folder.rglob("*.py"))])


# A language is named in itself.
IN_ANY_LANGUAGE = ("pages.language",)


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_the_languages_have_the_same_files() -> None:
    names = [{file.name for file in (WORDS_FOLDER / language).iterdir()} for language in LANGUAGES]
    assert names[0] == names[1] and {"engine.toml", "model.toml", "text.toml"} <= names[0]
    assert {folder.name for folder in WORDS_FOLDER.iterdir() if folder.is_dir()} == set(LANGUAGES)


def test_the_languages_have_the_same_keys_and_placeholders() -> None:
    one, other = (catalogue(language) for language in LANGUAGES)
    assert one.keys() == other.keys() and len(one) > 50
    different = {key for key in one if placeholders(one[key]) != placeholders(other[key])}
    assert different == set()


def areas() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for language in LANGUAGES:
        for file in sorted((WORDS_FOLDER / language).glob("*.toml")):
            yield language, file.stem, tomllib.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("language", "area", "words"), list(areas()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_texts_are_texts(language: str, area: str, words: dict[str, Any]) -> None:
    """Flat, none empty, none with an accidental edge, each in its own language."""
    for key, text in words.items():
        assert isinstance(text, str) and text.strip() == text != "", key
        assert all(name.isidentifier() for name in placeholders(text)), key
        if language == "en":
            assert not CJK.search(text) or f"{area}.{key}".startswith(IN_ANY_LANGUAGE), key


def test_sentences_in_chinese_are_chinese() -> None:
    """What is long enough to be a sentence is not left in English."""
    chinese, english = catalogue("zh"), catalogue("en")
    left = [key for key in chinese if len(english[key].split()) > 4 and not CJK.search(chinese[key])]
    assert [key for key in left if not key.startswith(IN_ANY_LANGUAGE)] == []


class Call:
    """One `Refusal("area.key", name=…)` in the code."""

    def __init__(self, file: Path, node: ast.Call) -> None:
        self.place = f"{file.name}:{node.lineno}"
        first = node.args[0] if node.args else None
        self.keys = list(_texts(first))
        self.names = {keyword.arg for keyword in node.keywords}


def _texts(node: ast.expr | None) -> Iterator[str]:
    """The literal keys an argument may be: a text, or one of two by a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def refusals() -> list[Call]:
    return [
        Call(file, node)
        for file in source_files()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal"
    ]


def test_every_refusal_has_its_sentence_and_fills_it() -> None:
    known = catalogue("en")
    calls = refusals()
    assert len(calls) > 40
    for call in calls:
        for key in call.keys:
            assert key in known, f"{call.place}: {key}"
            if None not in call.names:  # no **values
                assert placeholders(known[key]) == call.names, f"{call.place}: {key}"


def test_every_sentence_of_a_refusal_is_used() -> None:
    """A text nobody can come to see is dead: each key of core's areas stands in the code as a literal."""
    literals = {
        node.value
        for file in source_files()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unused = {
        key for key in catalogue("en") if key.split(".")[0] in ("engine", "estimate", "model", "saved", "text")
    } - literals
    assert unused == set()


def test_every_word_of_the_pages_is_used() -> None:
    """A key stands in the code or in the JavaScript whole, or as the beginning or end that is put together."""
    files = [*source_files(), *(ROOT / "assets").glob("*/*.js")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    beginnings = tuple(re.findall(r"""[`"'](?:\w+\.)?(\w+_)\$?\{""", source))
    ends = tuple(re.findall(r"""\}(_\w+)[`"']""", source))
    areas = (
        *("pages", "settings", "stage", "derivations", "planner", "costs", "batch"),
        *("tools", "race", "causality", "timeline", "keepsake", "microscope"),
        *("flash", "experts", "time", "roofs", "lab", "report", "terms", "server"),
    )
    quoted = set(re.findall(r"""[`"'](\w[\w.]*)(?=[`"'])""", source)) | set(re.findall(r"[{,] (\w+): '", source))
    keys = [key.split(".") for key in catalogue("en") if key.split(".")[0] in areas]
    unused = [
        f"{area}.{key}"
        for area, key in keys
        if not {key, f"{area}.{key}"} & quoted and not key.startswith(beginnings) and not key.endswith(ends)
    ]
    assert unused == []


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_chinese_in_code(file: Path) -> None:
    """Not in comments and docstrings either: words for people live in assets/words."""
    found = [line for line in file.read_text(encoding="utf-8").splitlines() if CJK.search(line)]
    assert found == []


def test_a_refusal_speaks_both_languages() -> None:
    refusal = Refusal("engine.prompt_too_long", n_tokens=17, limit=16)
    assert str(refusal) == refusal.sentence("en") == refusal.sentence()
    assert "17" in refusal.sentence("zh") and "16" in refusal.sentence("zh") and CJK.search(refusal.sentence("zh"))
    with pytest.raises(KeyError):
        sentence("engine.no_such_key", "en")


def test_values_are_not_read_as_placeholders() -> None:
    """What a visitor types is put in as it is, braces and all."""
    assert "{limit}{0.__class__}" in Refusal("engine.device_unknown", device="{limit}{0.__class__}").sentence("zh")
