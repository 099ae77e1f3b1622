"""An event loop for the clients of a test, in a thread of its own: the browser tests keep one in the main thread."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What the coroutine returns, or raises."""
    with ThreadPoolExecutor(1, thread_name_prefix="clients") as elsewhere:
        return elsewhere.submit(uvloop.run, coroutine).result()
