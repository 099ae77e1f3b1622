"""The text side of a checkpoint: its tokenizer, chat template and the tokens that end a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.model.files.end_tokens import gguf_end_tokens, huggingface_end_tokens
from core.model.files.fields import Fields
from core.model.files.model_folder import ModelFolder
from core.model.text.chat_template import ChatTemplate, UnusableTemplate
from core.model.text.tokenizer import Tokenizer
from core.refusal import Refusal

_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSide:
    """What stands between a text and the ids of the model."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    end_token_ids: frozenset[int]


def huggingface_text_side(folder: ModelFolder, config: Mapping[str, Any], n_rows: int) -> TextSide:
    """The text side of the directory whose config.json is `config` and whose table of tokens has `n_rows` rows.

    Raises:
        Refusal: a file is missing, broken, or does not belong to this model.
    """
    source = folder.read_text(_TOKENIZER, most_bytes=1 << 26)
    if source is None:
        raise Refusal("model.file_missing", file=_TOKENIZER)
    settings = folder.read_json("tokenizer_config.json", most_bytes=1 << 23) or {}
    generation = folder.read_json("generation_config.json") or {}
    tokenizer = Tokenizer.from_tokenizer_json(source, settings)
    _refuse_more_tokens_than_rows(tokenizer, n_rows, _TOKENIZER)
    return TextSide(
        tokenizer=tokenizer,
        chat_template=_chat_template(_template_source(folder, settings), tokenizer),
        end_token_ids=huggingface_end_tokens(generation, config, tokenizer.end_token_id),
    )


def gguf_text_side(settings: Mapping[str, Any], n_rows: int, file: str) -> TextSide:
    """The text side of a GGUF file from the settings in its header; otherwise as for a directory."""
    tokenizer = Tokenizer.from_gguf(settings)
    _refuse_more_tokens_than_rows(tokenizer, n_rows, file)
    source = Fields(settings, file).text("tokenizer.chat_template")
    return TextSide(
        tokenizer=tokenizer,
        chat_template=_chat_template(source, tokenizer),
        end_token_ids=gguf_end_tokens(settings, file),
    )


def _refuse_more_tokens_than_rows(tokenizer: Tokenizer, n_rows: int, file: str) -> None:
    """The table may be longer than the vocabulary (it often is padded), never shorter."""
    n_tokens = tokenizer.vocab_size
    if n_tokens > n_rows:
        raise Refusal("model.more_tokens_than_rows", n_tokens=n_tokens, n_rows=n_rows, file=file)


def _chat_template(source: str | None, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The template with the names of the tokenizer's start and end tokens, or None where there is no source."""
    if source is None:
        return None
    start, end = tokenizer.token_name(tokenizer.start_token_id), tokenizer.token_name(tokenizer.end_token_id)
    try:
        return ChatTemplate(source, start_token=start, end_token=end)
    except Refusal as refusal:
        return UnusableTemplate(refusal)


def _template_source(folder: ModelFolder, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else the setting: one template, or a list of named ones of which "default" is meant."""
    source = folder.read_text("chat_template.jinja", most_bytes=1 << 20)
    if source is not None:
        return source
    stated = settings.get("chat_template")
    for named in stated if isinstance(stated, list) else []:
        if isinstance(named, dict) and named.get("name") == "default":
            stated = named.get("template")
    return stated if isinstance(stated, str) else None
