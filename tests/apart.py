"""Coroutines in tests whose process may have driven a browser before: its loop still runs in the tests' thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def apart(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs it to its end, with a loop of its own in a thread of its own."""
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(asyncio.run, coroutine).result()
