"""One thread for jobs that wait in a queue and are carried out one after another: models are loaded so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Worker:
    """Carries out jobs in the order they came, in a thread of its own; waiting for the next one costs nothing.

    A job is any callable. What it returns or raises goes to the Future of whoever handed
    it in, and the thread goes on with the next.
    """

    def __init__(self, name: str) -> None:
        """`name` is what the thread is called in a debugger."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Queues a job. A Future that is cancelled before its turn is skipped. Raises RuntimeError after `stop`."""
        return self._executor.submit(job)

    def stop(self) -> None:
        """Lets the job under way finish, cancels those that wait, and joins the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)
