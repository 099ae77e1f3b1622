"""What Hugging Face's tokenizer.json says about itself, checked before the library builds anything from it.

The file is a small program: normalizers that rewrite a text, patterns that cut it, a decoder that puts it together.
Only parts whose effect on a text we can repeat byte by byte are let in, and only where a text cannot grow or stall.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.model.text.subword_tokenizer import SPACE_SIGN
from core.refusal import Refusal

LONGEST_DESCRIPTION = 1 << 26  # characters; the largest published ones have about 35 million
MOST_PARTS = 64
MOST_GROWTH = 64
LONGEST_PATTERN = 4096

_ALLOWED = {
    "normalizer": {"Sequence", "Prepend", "Replace", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip"},
    "pre_tokenizer": {
        *("Sequence", "ByteLevel", "Split", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit"),
    },
    "decoder": {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace"},
}
# A repeated group, as in (a+)+, can make a pattern try exponentially many ways; published tokenizers have none.
_REPEATED_GROUP = re.compile(r"(?<!\\)\)[*+{]")

Description = dict[str, Any]


def read_description(text: str) -> Description:
    """The parsed tokenizer.json. Raises Refusal when it is broken or of a kind that is not supported."""
    if len(text) > LONGEST_DESCRIPTION:
        raise Refusal("text.broken_tokenizer")
    try:
        description = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Refusal("text.broken_tokenizer") from problem
    if not isinstance(description, dict):
        raise Refusal("text.broken_tokenizer")
    if description.get("type") != "characters":
        _check_model(description.get("model"))
        _check_parts(description)
    return description


def _check_model(model: object) -> None:
    if not isinstance(model, dict):
        raise Refusal("text.broken_tokenizer")
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise Refusal("text.unknown_tokenizer_model", name=str(kind)[:40])
    for field in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            raise Refusal("text.unknown_tokenizer_part", name=field)


def _check_parts(description: Description) -> None:
    count, growth = 0, 1.0
    for place, allowed in _ALLOWED.items():
        for part in parts(description, place):
            count += 1
            kind = str(part.get("type"))
            if kind not in allowed:
                raise Refusal("text.unknown_tokenizer_part", name=kind[:40])
            _check_pattern(part.get("pattern"))
            growth *= _growth(part)
    if count > MOST_PARTS or growth > MOST_GROWTH:
        raise Refusal("text.broken_tokenizer")


def _check_pattern(pattern: object) -> None:
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    if regex is None:
        return
    if not isinstance(regex, str) or len(regex) > LONGEST_PATTERN or _REPEATED_GROUP.search(regex):
        raise Refusal("text.tokenizer_pattern")


def _growth(part: Mapping[str, Any]) -> float:
    """How many times longer a part can make a text, at most."""
    if part.get("type") == "Prepend":
        return max(1.0, float(len(str(part.get("prepend")))))
    if part.get("type") != "Replace":
        return 1.0
    pattern = part.get("pattern")
    found = pattern.get("String", "") if isinstance(pattern, dict) else ""
    return max(1.0, len(str(part.get("content"))) / max(1, len(str(found))))


def parts(description: Description, place: str) -> Iterator[Mapping[str, Any]]:
    """The parts standing at `place` ("normalizer", "decoder", …), sequences flattened."""
    waiting = [description.get(place)]
    for _ in range(MOST_PARTS * 4):
        if not waiting:
            return
        part = waiting.pop(0)
        if part is None:
            continue
        if not isinstance(part, dict):
            raise Refusal("text.broken_tokenizer")
        yield part
        for members in ("normalizers", "pretokenizers", "decoders", "processors"):
            inner = part.get(members, [])
            waiting[:0] = inner if isinstance(inner, list) else [inner]
    raise Refusal("text.broken_tokenizer")


def is_byte_level(description: Description) -> bool:
    """Whether tokens are spelled in GPT-2's byte alphabet. Raises Refusal for a third kind beside SentencePiece."""
    if any(part.get("type") == "ByteLevel" for place in _ALLOWED for part in parts(description, place)):
        return True
    for part in parts(description, "decoder"):
        kind, pattern = part.get("type"), part.get("pattern")
        if kind in ("Metaspace", "ByteFallback") or (kind == "Replace" and pattern == {"String": SPACE_SIGN}):
            return False
    raise Refusal("text.unknown_tokenizer_part", name="decoder")


def drops_first_space(description: Description) -> bool:
    """Whether decoding takes away the space that encoding puts in front of a text."""
    for part in parts(description, "decoder"):
        if part.get("type") == "Strip" and part.get("content") == " " and part.get("start"):
            return True
        if part.get("type") == "Metaspace":
            return bool(part.get("prepend_scheme", "always") != "never" and part.get("add_prefix_space", True))
    return False


def start_token_name(description: Description) -> str | None:
    """The special token that the post-processor puts in front of a text, if it does."""
    for part in parts(description, "post_processor"):
        template = part.get("single") if part.get("type") == "TemplateProcessing" else None
        first = template[0] if isinstance(template, list) and template else None
        token = first.get("SpecialToken") if isinstance(first, dict) else None
        name = token.get("id") if isinstance(token, dict) else None
        if isinstance(name, str):
            return name
    return None
