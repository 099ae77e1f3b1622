"""What one rendering of a chat template may cost, and the values that count against it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import SecurityError

from core.refusal import Refusal

MOST_SECONDS = 2.0
# In characters; a step counts as STEP of them and a place in a list as PLACE. A real template on a long conversation
# uses a few times its length; this bounds memory at some hundred megabytes in the worst case one can write.
ALLOWANCE = 16_000_000
STEP, PLACE = 64, 16
DEEPEST = 50


class Budget:
    """Runs out when a rendering takes too long or makes too much."""

    def __init__(self, extra: int = 0) -> None:
        """`extra`: characters that the conversation itself may add to the allowance."""
        self._left = ALLOWANCE + extra
        self._deadline = time.monotonic() + MOST_SECONDS

    def spend(self, size: int = 0) -> None:
        """Counts one step and `size` characters. Raises Refusal when either limit is passed."""
        self._take(STEP + size)

    def listed(self, value: Any) -> Any:
        """An iterator as a list, so that nothing lazy escapes; anything else as it is."""
        return list(self._each(value)) if isinstance(value, Iterator) else value

    def made(self, value: Any) -> Any:
        """A value the template made, counted with all it holds.

        Counting what a list holds as often as it is held stops lists of lists of lists that are small in memory and
        endless in print.
        """
        value = self.listed(value)
        self.spend(self._size(value, strict=False))
        return value

    def printed(self, value: Any) -> str:
        """The value as text. Only texts, numbers and collections of them have one: an object's inside stays inside."""
        self.spend(self._size(value, strict=True))
        return str(value)

    def copied(self, value: Any) -> Any:
        """A slice: counted by its own length, what it holds was counted before."""
        self.spend(PLACE * len(value) if hasattr(value, "__len__") else 0)
        return value

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0 or time.monotonic() > self._deadline:
            raise Refusal("text.template_too_costly")

    def _each(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._take(PLACE)
            yield value

    def _size(self, value: Any, *, strict: bool, depth: int = 0) -> int:
        """Characters that `value` is worth. Walks into collections, counting what they hold as it goes."""
        if isinstance(value, str):
            return len(value)
        if value is None or isinstance(value, bool | int | float | Undefined):
            return 0
        if isinstance(value, Mapping):
            members: Iterable[Any] = (member for pair in value.items() for member in pair)
        elif isinstance(value, list | tuple | set | frozenset):
            members = value
        elif strict:
            raise SecurityError(f"a {type(value).__name__} has no text")
        else:
            return 0
        if depth > DEEPEST:
            raise Refusal("text.template_too_costly")
        for member in members:
            self._take(PLACE + self._size(member, strict=strict, depth=depth + 1))
        return 0
