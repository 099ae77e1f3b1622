"""Tokenizers of published models: the cutting is done by the `tokenizers` library, the way back by a table of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import tokenizers

from core.model.text.tokenizer import Piece, Tokenizer
from core.refusal import Refusal

Result = TypeVar("Result")

SPACE_SIGN = "▁"


def _byte_alphabet() -> dict[int, int]:
    """GPT-2's alphabet, sign to byte: printable Latin-1 stands for itself, the other bytes for U+0100 and up.

    Source: `bytes_to_unicode` in OpenAI's GPT-2 release; the `tokenizers` library calls it ByteLevel.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + i: byte for i, byte in enumerate(others)}


_BYTE_OF_SIGN = _byte_alphabet()


def byte_level_content(name: str) -> bytes:
    """The bytes of a byte-level token; a name outside that alphabet is taken as it is written."""
    try:
        return name.translate(_BYTE_OF_SIGN).encode("latin-1")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace")


def sentencepiece_content(name: str) -> bytes:
    """The bytes of a SentencePiece token: ▁ is a space, <0xE4> is one byte."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        try:
            return bytes([int(name[3:5], 16)])
        except ValueError:
            pass
    return name.replace(SPACE_SIGN, " ").encode("utf-8", "replace")


def attempt(action: Callable[[], Result], key: str) -> Result:
    """What the library does, or the refusal `key` when it fails. Its Rust code panics on some hostile input, and a
    panic is no Exception in Python."""
    try:
        return action()
    except Exception as problem:
        raise Refusal(key) from problem
    except BaseException as problem:
        if type(problem).__name__ == "PanicException":
            raise Refusal(key) from problem
        raise


class SubwordTokenizer(Tokenizer):
    """Byte-level BPE or SentencePiece-style BPE, cut by the `tokenizers` library.

    A character that the vocabulary cannot spell is left out, as the library does: SmolLM2's has no token for a few
    control characters (U+0004, U+0006, …) and for planes of Unicode that are not assigned.
    """

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        pieces: Sequence[Piece],
        *,
        start_token_id: int | None,
        end_token_id: int | None,
        adds_start_token: bool,
        drops_first_space: bool,
    ) -> None:
        """`library` is this object's alone; its truncation, padding and dropout are switched off."""
        library.no_truncation()
        library.no_padding()
        if isinstance(library.model, tokenizers.models.BPE):
            library.model.dropout = None
        self._library = library
        super().__init__(
            pieces,
            start_token_id=start_token_id,
            end_token_id=end_token_id,
            adds_start_token=adds_start_token,
            drops_first_space=drops_first_space,
        )

    def _cut(self, text: str) -> list[int]:
        encoding = attempt(lambda: self._library.encode(text, add_special_tokens=False), "text.cannot_cut")
        return list(encoding.ids)
