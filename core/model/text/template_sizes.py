"""How large a result can become, asked before it is made, where a single step can make something large."""

from __future__ import annotations

from typing import Any

from jinja2.exceptions import SecurityError

from core.model.text.template_budget import DEEPEST, PLACE, Budget

LONGEST_INDENT = 100
_MOST_BITS = 4096
_ITERATING = {"list", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "unique"}
_PRINTING = {"indent", "join", "replace", "string", "tojson"}


def operator_size(operator: str, left: Any, right: Any) -> int:
    """What `left operator right` can take, in characters. Raises SecurityError for formatting and endless numbers."""
    if operator == "%" and isinstance(left, str):
        raise SecurityError("text formatting with % is closed to templates")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > _MOST_BITS:
            raise SecurityError("the numbers grow beyond all use")
    if operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | list | tuple) and isinstance(times, int):
                return PLACE * len(many) * max(0, times)
    return 0


def method_size(budget: Budget, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """What a method of a text or a collection can take beyond the text itself, in characters."""
    if name == "replace":
        return _replaced_size(owner, *args, **kwargs)
    if name == "join":
        budget.printed(args[0])
        return len(owner) * len(args[0])
    if name in ("split", "rsplit", "splitlines"):
        separator = args[0] if args else kwargs.get("sep")
        return PLACE * (owner.count(separator) if separator and name != "splitlines" else len(owner) // 2)
    return 0


def filter_size(budget: Budget, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """What a filter can take beyond its input, in characters."""
    if name in _ITERATING:
        return PLACE * len(value) if isinstance(value, str | range) else 0
    if name not in _PRINTING:
        return 0
    text = budget.printed(value)
    if name == "replace":
        return _replaced_size(text, *args, **kwargs)
    if name == "join":
        separator = args[0] if args else kwargs.get("d", "")
        return len(str(separator)) * (len(value) if hasattr(value, "__len__") else 0)
    if name == "indent":
        return _width(kwargs.get("width", args[0] if args else 4)) * (text.count("\n") + 1)
    if name == "tojson":
        places = text.count(",") + text.count(":") + text.count("[") + text.count("{") + 1
        marks = kwargs.get("separators") or ()
        return places * (DEEPEST * _width(kwargs.get("indent", 0)) + sum(map(_width, marks)))
    return 0


def _replaced_size(text: str, old: Any = "", new: Any = "", count: Any = None, **_: Any) -> int:
    return text.count(str(old)) * len(str(new))


def _width(indent: Any) -> int:
    width = len(indent) if isinstance(indent, str) else indent if isinstance(indent, int) else 0
    if width > LONGEST_INDENT:
        raise SecurityError("the indentation is too wide")
    return max(0, width)
