"""Text that arrives token by token (known faults B12, B13)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from core.model.text.character_tokenizer import CharacterTokenizer
from core.model.text.text_stream import TextStream
from core.model.text.tokenizer import Piece, Tokenizer


class Pieces(Tokenizer):
    """A tokenizer that is nothing but its pieces; an empty one is a special token."""

    def __init__(self, *contents: bytes, drops_first_space: bool = False) -> None:
        pieces = [Piece(content, "<special>", special=not content) for content in contents]
        super().__init__(
            pieces,
            start_token_id=None,
            end_token_id=None,
            adds_start_token=False,
            drops_first_space=drops_first_space,
        )

    def _cut(self, text: str) -> list[int]:
        raise NotImplementedError


def shown_after_each(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    stream = TextStream(tokenizer)
    shown = []
    for token_id in ids:
        stream.push(token_id)
        shown.append(stream.text)
    return shown


def test_a_character_over_two_tokens_appears_when_complete() -> None:
    tokenizer = Pieces(b"\xe4\xbd", b"\xa0\xe5", b"\xa5\xbd", b"\xf0\x9f", b"\x99\x82")
    assert shown_after_each(tokenizer, [0, 1, 2]) == ["", "你", "你好"]
    assert shown_after_each(tokenizer, [3, 4]) == ["", "🙂"]


def test_byte_by_byte() -> None:
    tokenizer = CharacterTokenizer(json.dumps({"type": "characters", "characters": []}))
    assert shown_after_each(tokenizer, tokenizer.encode("é🙂a")) == ["", "é", "é", "é", "é", "é🙂", "é🙂a"]


def test_special_and_unknown_tokens_do_not_break_a_character() -> None:
    tokenizer = Pieces(b"\xe4\xbd", b"", b"\xa0")
    assert shown_after_each(tokenizer, [0, 1, 99, 2]) == ["", "", "", "你"]


def test_bytes_that_can_never_be_a_character_are_marked_at_once_and_unfinished_ones_at_the_end() -> None:
    stream = TextStream(Pieces(b"\xff", b"\xe4\xbd", b"a"))
    assert [stream.push(0), stream.push(1), stream.push(2), stream.push(1)] == ["\ufffd", "", "\ufffda", ""]
    assert (stream.flush(), stream.flush()) == ("\ufffd", "")
    assert stream.text == "\ufffd\ufffda\ufffd"


def test_leading_spaces() -> None:
    sentencepiece = Pieces(b" This", b" is", b" ...", b"", drops_first_space=True)
    assert shown_after_each(sentencepiece, [3, 0, 1, 2]) == ["", "This", "This is", "This is ..."]
    byte_level = Pieces(b" This", b" is")
    assert shown_after_each(byte_level, [0, 1]) == [" This", " This is"]


def test_a_stream_that_continues_a_prompt_keeps_its_leading_space() -> None:
    tokenizer = Pieces(b" This", b" is", b"", drops_first_space=True)
    stream = TextStream(tokenizer, after=[2, 0])
    assert (stream.text, stream.push(1), stream.text) == ("", " is", " is")
    # After nothing but a start token it is the start of the text.
    assert TextStream(tokenizer, after=[2]).push(1) == "is"
    assert tokenizer.decode([2, 0]) + tokenizer.decode([1], after=[2, 0]) == tokenizer.decode([2, 0, 1]) == "This is"


@pytest.mark.parametrize("drops_first_space", [False, True])
def test_a_stream_equals_the_decoding_of_all_bytes(drops_first_space: bool) -> None:
    rng = random.Random(5)
    texts = " aé你🙂\n\ufeff\u0301"
    for _ in range(300):
        raw = bytearray("".join(rng.choices(texts, k=12)).encode())
        if rng.random() < 0.5:  # damaged: a byte changed, or the end cut off
            raw[rng.randrange(len(raw))] = rng.randrange(256)
            del raw[rng.randrange(1, len(raw)) :]
        cuts = sorted(rng.choices(range(len(raw) + 1), k=6))
        contents = [bytes(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        tokenizer = Pieces(*contents, drops_first_space=drops_first_space)
        stream = TextStream(tokenizer)
        arrived = [stream.push(token_id) for token_id in range(len(contents))] + [stream.flush()]
        expected = raw.removeprefix(b" ") if drops_first_space else raw
        assert "".join(arrived) == stream.text == tokenizer.decode(range(len(contents)))
        assert stream.text == expected.decode("utf-8", "replace")
        for split in range(len(contents)):
            before = TextStream(tokenizer)
            shown = "".join(map(before.push, range(split)))
            assert shown + tokenizer.decode(range(split, len(contents)), after=range(split)) == stream.text
