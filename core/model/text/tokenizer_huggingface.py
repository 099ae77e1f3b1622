"""The tokenizer of a Hugging Face directory: tokenizer.json and what tokenizer_config.json adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers

from core.model.text.character_tokenizer import CharacterTokenizer
from core.model.text.subword_tokenizer import SubwordTokenizer, attempt, byte_level_content, sentencepiece_content
from core.model.text.tokenizer import UNUSED, Piece, Tokenizer
from core.model.text.tokenizer_json import drops_first_space, is_byte_level, read_description, start_token_name
from core.refusal import Refusal

MOST_TOKENS = 1 << 22


def from_tokenizer_json(text: str, settings: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer in a tokenizer.json, Hugging Face's or our own list of characters.

    `settings` is the content of tokenizer_config.json (bos_token, eos_token, add_bos_token), if there is one. Raises
    Refusal when the file is broken or holds parts whose effect on a text is not known here.
    """
    settings = settings or {}
    description = read_description(text)
    if description.get("type") == "characters":
        return CharacterTokenizer(text)
    content = byte_level_content if is_byte_level(description) else sentencepiece_content
    library = attempt(lambda: tokenizers.Tokenizer.from_str(text), "text.broken_tokenizer")
    names = {token_id: name for name, token_id in library.get_vocab(with_added_tokens=True).items()}
    if not names or max(names) >= MOST_TOKENS:
        raise Refusal("text.broken_tokenizer")
    pieces = [UNUSED] * (max(names) + 1)
    for token_id, name in names.items():
        pieces[token_id] = Piece(content(name), name)
    for token_id, token in library.get_added_tokens_decoder().items():
        own = b"" if token.special else token.content.encode("utf-8", "replace")
        pieces[token_id] = Piece(own, token.content, special=token.special)
    template_start = start_token_name(description)
    start = _named_token(settings, "bos_token", library)
    if start is None and template_start is not None:
        start = library.token_to_id(template_start)
    adds_start = settings.get("add_bos_token")
    return SubwordTokenizer(
        library,
        pieces,
        start_token_id=start,
        end_token_id=_named_token(settings, "eos_token", library),
        adds_start_token=adds_start if isinstance(adds_start, bool) else template_start is not None,
        drops_first_space=drops_first_space(description),
    )


def _named_token(settings: Mapping[str, Any], field: str, library: tokenizers.Tokenizer) -> int | None:
    """The id of a token that the settings name, as text or as {"content": text}."""
    named = settings.get(field)
    if isinstance(named, Mapping):
        named = named.get("content")
    if named is None:
        return None
    token_id = library.token_to_id(named) if isinstance(named, str) else None
    if token_id is None:
        raise Refusal("text.token_not_in_vocabulary", field=field, token=repr(named)[:40])
    return token_id
