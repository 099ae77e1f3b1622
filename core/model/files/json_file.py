"""JSON written by strangers: one object, of bounded size, read strictly or refused."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from core.model.files.fields import shown
from core.refusal import Refusal


def parse_json_object(data: bytes, file: str) -> dict[str, Any]:
    """The object that `data` spells in UTF-8, with or without a byte order mark; `file` is the name used in a refusal.

    Stricter than Python's own reader: a key may stand once in an object, NaN and Infinity are no numbers, and nesting
    is bounded by the interpreter's recursion limit.

    Raises:
        Refusal: not UTF-8, not JSON, not an object, or one of the above.
    """

    def no_constant(constant: str) -> NoReturn:
        raise Refusal("model.json_not_a_number", file=file, value=constant)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
            raise Refusal("model.json_key_twice", file=file, name=shown(twice))
        return found

    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=no_constant, object_pairs_hook=once)
    except RecursionError:
        raise Refusal("model.json_too_deep", file=file) from None
    except ValueError:  # UnicodeDecodeError, JSONDecodeError, and an integer of thousands of digits
        raise Refusal("model.json_broken", file=file) from None
    if not isinstance(value, dict):
        raise Refusal("model.json_broken", file=file)
    return value
