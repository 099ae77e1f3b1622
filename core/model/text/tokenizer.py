"""What every tokenizer can do: text to ids, an id to its bytes, ids back to text.

The kinds stand in files of their own: `character_tokenizer`, and `subword_tokenizer` with what reads it out of GGUF
files (`tokenizer_gguf`) and Hugging Face directories (`tokenizer_huggingface`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.model.text.text_stream import TextStream

_VISIBLE = {"\n": "⏎", "\t": "⇥", "\r": "␍"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary: the bytes it adds to a text, its name in the file, and whether it steers the
    model (`special`) instead of being text. An `unused` id exists only to pad the table."""

    content: bytes
    name: str
    special: bool = False
    unused: bool = False


UNUSED = Piece(b"", "", special=False, unused=True)


class Tokenizer(ABC):
    """A vocabulary and the way a text is cut into it. Immutable and shared by all runs.

    Attributes:
        vocab_size: ids at or beyond it have no token (a model's output is often wider: mask those).
        start_token_id: the token that begins a text, if there is one.
        end_token_id: the tokenizer's own end token, if it names one (a model may declare more).
        adds_start_token: whether the model was trained on texts that begin with the start token.
        drops_first_space: whether a text begins with a space that was not written (SentencePiece).
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        start_token_id: int | None,
        end_token_id: int | None,
        adds_start_token: bool,
        drops_first_space: bool = False,
    ) -> None:
        self._pieces = tuple(pieces)
        self.vocab_size = len(self._pieces)
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        self.adds_start_token = adds_start_token and start_token_id is not None
        self.drops_first_space = drops_first_space

    @staticmethod
    def from_gguf(fields: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer that the metadata of a GGUF file describes: see `tokenizer_gguf.from_gguf`."""
        # The readers build subclasses of this class, so they can only be imported once it exists.
        from core.model.text.tokenizer_gguf import from_gguf

        return from_gguf(fields)

    @staticmethod
    def from_tokenizer_json(text: str, settings: Mapping[str, Any] | None = None) -> Tokenizer:
        """The tokenizer in a tokenizer.json: see `tokenizer_huggingface.from_tokenizer_json`."""
        from core.model.text.tokenizer_huggingface import from_tokenizer_json

        return from_tokenizer_json(text, settings)

    @abstractmethod
    def _cut(self, text: str) -> list[int]:
        """The ids of a text free of lone surrogates, without a start token of our own."""

    def encode(self, text: str, *, add_start_token: bool = True) -> list[int]:
        """The ids of a text. Special tokens written in the text are recognised.

        The start token is put in front where the tokenizer asks for one and `add_start_token` allows it, and never
        a second time (a chat template often writes it itself). Half a surrogate pair, which no file can hold but a
        Python string can, is read as U+FFFD.
        """
        ids = self._cut(_without_lone_surrogates(text))
        if add_start_token and self.adds_start_token and self.start_token_id is not None:
            return ids if ids[:1] == [self.start_token_id] else [self.start_token_id, *ids]
        return ids

    def decode(self, ids: Iterable[int], *, after: Iterable[int] = ()) -> str:
        """The text of `ids`, as a continuation of the ids `after` (see TextStream). Unknown ids add nothing."""
        stream = TextStream(self, after)
        for token_id in ids:
            stream.push(token_id)
        stream.flush()
        return stream.text

    def token_bytes(self, token_id: int) -> bytes:
        """What the id adds to a text: nothing for special and unused ids, perhaps only part of a character."""
        return self._piece(token_id).content

    def is_special(self, token_id: int) -> bool:
        """Whether the id steers the model (start, end, roles) instead of being text."""
        return self._piece(token_id).special

    def token_label(self, token_id: int) -> str:
        """What a chip shows. Spaces stay, line ends and tabs become signs, other invisible characters their code
        point; a special token shows its name, a part of a character its bytes as hex."""
        piece = self._piece(token_id)
        if piece.unused:
            return f"unused id {token_id}"
        if piece.special:
            return piece.name
        try:
            text = piece.content.decode()
        except UnicodeDecodeError:
            return piece.content.hex(" ").upper()
        return "".join(map(_visible, text))

    def is_part_of_a_character(self, token_id: int) -> bool:
        """Whether the token's bytes are no whole characters, so that its label is hexadecimal."""
        piece = self._piece(token_id)
        if piece.unused or piece.special:
            return False
        try:
            piece.content.decode()
        except UnicodeDecodeError:
            return True
        return False

    def token_name(self, token_id: int | None) -> str:
        """The token as the file writes it ("<s>"), empty for None and for ids without a token: chat templates ask."""
        return "" if token_id is None else self._piece(token_id).name

    def _piece(self, token_id: int) -> Piece:
        return self._pieces[token_id] if 0 <= token_id < self.vocab_size else UNUSED


def _visible(character: str) -> str:
    if character in _VISIBLE:
        return _VISIBLE[character]
    return character if character == " " or character.isprintable() else f"U+{ord(character):04X}"


def _without_lone_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
