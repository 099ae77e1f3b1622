"""Text that appears while tokens arrive: a character split over several tokens is shown when it is complete."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.model.text.tokenizer import Tokenizer

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """Turns token ids into text one by one.

    Bytes of an unfinished character wait inside until the token that completes it; only bytes that can never become
    a character turn into U+FFFD. What is pushed and flushed, joined, is exactly `tokenizer.decode` of all ids: that
    method is this class.

    `after` holds the ids the text continues (the prompt). Their text is not part of the stream, but a stream that
    continues a text keeps the space its first token begins with, where the start of a text would lose it
    (SentencePiece writes one in front of every text).
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = ()) -> None:
        self.text = ""
        """Everything that became complete so far."""
        self._tokenizer = tokenizer
        self._decoder = _Utf8Decoder("replace")
        self._drop_space = tokenizer.drops_first_space
        for token_id in after:
            self._complete(token_id)

    def push(self, token_id: int) -> str:
        """The text that became complete with this token; often one piece, sometimes nothing, sometimes more."""
        arrived = self._complete(token_id)
        self.text += arrived
        return arrived

    def flush(self) -> str:
        """What is left at the end: a mark U+FFFD for a character that never became complete, else nothing."""
        rest = self._decoder.decode(b"", final=True)
        self.text += rest
        return rest

    def _complete(self, token_id: int) -> str:
        piece = self._tokenizer.token_bytes(token_id)
        if self._drop_space and piece:
            self._drop_space = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)
