"""The tokenizer of a GGUF file, from the metadata in its header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken

from core.model.text.pretokenizers import byte_level_library, sentencepiece_library
from core.model.text.subword_tokenizer import SubwordTokenizer, byte_level_content, sentencepiece_content
from core.model.text.tokenizer import UNUSED, Piece, Tokenizer
from core.refusal import Refusal

# GGUF's token types; 1 is an ordinary token and 6 a single byte. Source: `TokenType` of the gguf package.
_ORDINARY, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)
MOST_TOKENS = 1 << 22


def from_gguf(fields: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file from its metadata.

    `fields`: the file's own keys ("tokenizer.ggml.tokens", …) with plain Python values. Raises Refusal for a kind of
    tokenizer or a pre-tokenizer that is not known, and for fields that are missing or do not fit each other.
    """
    kind, rules = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind not in ("gpt2", "llama"):
        raise Refusal("text.unknown_tokenizer_model", name=str(kind)[:40])
    names = _list_field(fields, "tokens", str)
    types = _list_field(fields, "token_type", int, len(names), default=[_ORDINARY] * len(names))
    start, end = (_token_id(fields, f"{token}_token_id", len(names)) for token in ("bos", "eos"))
    types = [_CONTROL if token_id in (start, end) else kind_of for token_id, kind_of in enumerate(types)]
    space_prefix = kind == "llama" and _flag(fields, "add_space_prefix", default=True)
    if kind == "gpt2":
        library = byte_level_library(str(rules), names, _list_field(fields, "merges", str))
        content = byte_level_content
    else:
        scores = _list_field(fields, "scores", (int, float), len(names))
        library = sentencepiece_library(names, scores, space_prefix=space_prefix)
        content = sentencepiece_content
    pieces = [_gguf_piece(name, kind_of, content) for name, kind_of in zip(names, types, strict=True)]
    while pieces and pieces[-1].unused:
        pieces.pop()
    for wanted, add in ((_CONTROL, library.add_special_tokens), (_USER_DEFINED, library.add_tokens)):
        chosen = [name for name, kind_of in zip(names, types, strict=True) if kind_of == wanted]
        add([AddedToken(name, normalized=False) for name in chosen])
    # Where a file is silent, SentencePiece models and Llama 3 begin with their start token (llama.cpp's defaults).
    return SubwordTokenizer(
        library,
        pieces,
        start_token_id=start,
        end_token_id=end,
        adds_start_token=_flag(fields, "add_bos_token", default=kind == "llama" or rules == "llama-bpe"),
        drops_first_space=space_prefix,
    )


def _gguf_piece(name: str, kind: int, content: Callable[[str], bytes]) -> Piece:
    if kind == _UNUSED:
        return UNUSED
    if kind in (_CONTROL, _UNKNOWN):
        return Piece(b"", name, special=True)
    # Users' own tokens ("<think>") are written plainly, not in the alphabet of the rest.
    return Piece(name.encode("utf-8", "replace") if kind == _USER_DEFINED else content(name), name)


def _list_field(
    fields: Mapping[str, Any],
    name: str,
    kind: type | tuple[type, ...],
    length: int | None = None,
    default: list[Any] | None = None,
) -> list[Any]:
    """A list in the metadata, all of one kind; as long as `length` where that is given."""
    values = fields.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(values, list) or not values or len(values) > MOST_TOKENS:
        raise Refusal("text.tokenizer_field", field=f"tokenizer.ggml.{name}")
    if not all(isinstance(value, kind) for value in values) or length not in (None, len(values)):
        raise Refusal("text.tokenizer_field", field=f"tokenizer.ggml.{name}")
    return values


def _token_id(fields: Mapping[str, Any], name: str, vocab_size: int) -> int | None:
    value = fields.get(f"tokenizer.ggml.{name}")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
        raise Refusal("text.tokenizer_field", field=f"tokenizer.ggml.{name}")
    return value


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise Refusal("text.tokenizer_field", field=f"tokenizer.ggml.{name}")
    return value
