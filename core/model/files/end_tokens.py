"""Which tokens end a text: a model may declare several, in several places, and all that are declared count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.files.fields import shown
from core.refusal import Refusal

_GGUF_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_LARGEST_ID = 1 << 31


def huggingface_end_tokens(
    generation: Mapping[str, Any], config: Mapping[str, Any], tokenizers_own: int | None
) -> frozenset[int]:
    """The end tokens of a Hugging Face directory: an id, a list of ids, or none at all.

    generation_config.json has the first word, also when it says null: then only the length ends a text. Where it is
    silent config.json speaks, and where that is silent or null, the tokenizer's own end token.

    Args:
        generation: the object in generation_config.json, empty where there is no file.
        config: the object in config.json.
        tokenizers_own: the id of the end token that tokenizer_config.json names.

    Raises:
        Refusal: something that is no id.
    """
    if "eos_token_id" in generation:
        return _ids(generation["eos_token_id"], "generation_config.json")
    if config.get("eos_token_id") is not None:
        return _ids(config["eos_token_id"], "config.json")
    return frozenset() if tokenizers_own is None else frozenset({tokenizers_own})


def gguf_end_tokens(settings: Mapping[str, Any], file: str) -> frozenset[int]:
    """The end tokens of a GGUF file: end of text, end of turn and end of message, as far as they are stated.

    Raises:
        Refusal: something that is no id.
    """
    return frozenset().union(*(_ids(settings.get(key), file) for key in _GGUF_KEYS))


def _ids(value: Any, file: str) -> frozenset[int]:
    entries = value if isinstance(value, list) else [] if value is None else [value]
    for entry in entries:
        if not isinstance(entry, int) or isinstance(entry, bool) or not 0 <= entry < _LARGEST_ID:
            raise Refusal("model.end_token_not_an_id", value=shown(entry), file=file)
    return frozenset(entries)
