"""Server-sent events: the lines of a stream as its data, and the data as pieces of text, usage and endings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.lab.remote.faults import Fault, Kind

DONE = "[DONE]"
_MOST_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server counts: tokens of the prompt and of the answer, and how many of the prompt it had cached."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream: whether it brings text, why the answer ended if it did, and the usage if it has it."""

    has_text: bool
    finish: str | None
    usage: Usage | None


def data_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each event, as the HTML standard has it: lines that begin with `data:`, up to an empty one.

    Comments (`: ping`) and other fields are passed over. What stands behind the last empty line counts too, for
    servers that forget it. Raises Fault for what is not UTF-8.
    """
    data: list[str] = []
    for raw in lines:
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise Fault(Kind.NOT_JSON) from None
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
    if data:
        yield "\n".join(data)


def chunk_of(data: str) -> Chunk:
    """An event of /v1/completions or /v1/chat/completions. Raises Fault for what is neither, and for an error."""
    found = object_of(data)
    if found.get("error"):
        raise Fault(Kind.SERVER_ERROR)
    choices = found.get("choices", [])
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise Fault(Kind.NOT_JSON)
    finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    return Chunk(
        has_text=any(_text_of(choice) for choice in choices),
        finish=str(finishes[0]) if finishes else None,
        usage=usage_of(found),
    )


def object_of(data: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises Fault for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Fault(Kind.NOT_JSON) from None
    if not isinstance(found, dict):
        raise Fault(Kind.NOT_JSON)
    return found


def usage_of(found: Mapping[str, Any]) -> Usage | None:
    """The `usage` of an answer, None where it is missing or null. Raises Fault where it is no usage."""
    usage = found.get("usage")
    if usage is None:
        return None
    if not isinstance(usage, dict):
        raise Fault(Kind.NOT_JSON)
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens", 0))
    if prompt is None or completion is None:
        raise Fault(Kind.NOT_JSON)
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(prompt, completion, cached)


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS
    return value if is_count else None  # type: ignore[return-value]


def _text_of(choice: Mapping[str, Any]) -> str:
    """A choice's new text: of a completion, of a chat, or what a model thinks before it answers."""
    delta = choice.get("delta")
    texts = [choice.get("text")]
    if isinstance(delta, dict):
        texts += [delta.get(name) for name in ("content", "reasoning_content", "reasoning")]
    return "".join(text for text in texts if isinstance(text, str))
