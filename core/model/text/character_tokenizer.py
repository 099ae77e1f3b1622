"""The tiny model's tokenizer: one id a character, bytes for every other character, so that any text round-trips."""

from __future__ import annotations

import json
import re
from typing import Any

from core.model.text.tokenizer import Piece, Tokenizer
from core.refusal import Refusal

START_TOKEN, END_TOKEN = "<s>", "</s>"
MOST_CHARACTERS = 1 << 20


class CharacterTokenizer(Tokenizer):
    """Ids: the special tokens first, then the 256 bytes, then the characters, in the order of the file.

    The file is `{"type": "characters", "characters": ["…", …], "special": ["<s>", "</s>", …]}`. Where "<s>" is among
    the special tokens every text begins with it. Nothing is normalised: the text that comes out is, byte for byte,
    the text that went in. (Special tokens written in a text are recognised, and then are no text.)
    """

    def __init__(self, source: str) -> None:
        """`source`: the content of the file. Raises Refusal when it is not of this form."""
        special, characters = _parse(source)
        names = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
        contents = [b""] * len(special) + [bytes([byte]) for byte in range(256)] + [c.encode() for c in characters]
        ids = {name: index for index, name in enumerate(special)}
        super().__init__(
            [Piece(content, name, name in ids) for content, name in zip(contents, names, strict=True)],
            start_token_id=ids.get(START_TOKEN),
            end_token_id=ids.get(END_TOKEN),
            adds_start_token=True,
        )
        self._special_ids = ids
        self._first_byte = len(special)
        self._character_ids = {character: self._first_byte + 256 + i for i, character in enumerate(characters)}
        longest_first = sorted(special, key=len, reverse=True)
        self._special_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if special else None

    def _cut(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in self._special_pattern.split(text) if self._special_pattern else [text]:
            if part in self._special_ids:
                ids.append(self._special_ids[part])
                continue
            for character in part:
                known = self._character_ids.get(character)
                if known is None:
                    ids.extend(self._first_byte + byte for byte in character.encode())
                else:
                    ids.append(known)
        return ids


def _parse(source: str) -> tuple[list[str], list[str]]:
    """The special tokens and the characters, checked: texts, no repetition, a character is one character."""
    try:
        content: Any = json.loads(source)
    except (ValueError, RecursionError) as problem:
        raise Refusal("text.broken_character_tokenizer") from problem
    if not isinstance(content, dict) or content.get("type") != "characters":
        raise Refusal("text.broken_character_tokenizer")
    special: Any = content.get("special", [])
    characters: Any = content.get("characters")
    for names in (special, characters):
        if not isinstance(names, list) or len(names) > MOST_CHARACTERS or not all(map(_is_text, names)):
            raise Refusal("text.broken_character_tokenizer")
        if len(set(names)) < len(names):
            raise Refusal("text.broken_character_tokenizer")
    if any(len(character) != 1 for character in characters):
        raise Refusal("text.broken_character_tokenizer")
    return special, characters


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= c <= "\udfff" for c in value)
