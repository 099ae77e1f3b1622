"""The code behind a figure, read from its own file, so that what is shown is what ran."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A function or property of ours: its name, its file from the root of the repository, its text if there is any."""

    name: str
    path: str
    code: str | None


def sources(*things: Callable[..., object] | property) -> tuple[Source, ...]:
    """Where the code of functions and properties stands, and the code where it can be read."""
    return tuple(_source(thing) for thing in things)


def _source(thing: Callable[..., object] | property) -> Source:
    function: Any = inspect.unwrap((thing.fget or thing) if isinstance(thing, property) else thing)  # type: ignore
    try:
        code = dedent(inspect.getsource(function))
    except (OSError, TypeError):  # an installation without source files
        code = None
    return Source(function.__qualname__, f"{function.__module__.replace('.', '/')}.py", code)
