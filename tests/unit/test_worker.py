"""A thread for jobs: order, results, exceptions, and a clean end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import pytest

from core.engine.worker import Worker
from tests.engines import PATIENCE, wait_until


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test")
    yield worker
    worker.stop()


def test_jobs_run_one_after_another_in_one_other_thread(worker: Worker) -> None:
    order: list[int] = []

    def job(number: int) -> str:
        order.append(number)
        time.sleep(0.002)
        order.append(number)
        return threading.current_thread().name

    names = {future.result(PATIENCE) for future in [worker.submit(lambda n=n: job(n)) for n in range(20)]}
    assert order == [n for n in range(20) for _ in range(2)]
    assert len(names) == 1 and threading.current_thread().name not in names


def test_an_exception_goes_to_the_one_who_waits_and_the_next_job_runs(worker: Worker) -> None:
    failing = worker.submit(lambda: [][0])
    following = worker.submit(lambda: "fine")
    with pytest.raises(IndexError):
        failing.result(PATIENCE)
    assert following.result(PATIENCE) == "fine"


def test_waiting_for_work_costs_no_cpu(worker: Worker) -> None:
    worker.submit(lambda: None).result(PATIENCE)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


def test_stop_finishes_the_job_under_way_and_cancels_the_rest(worker: Worker) -> None:
    started, waiting = threading.Event(), list[Future[str]]()

    def job() -> str:
        started.set()
        wait_until(lambda: any(future.cancelled() for future in waiting))
        return "done"

    under_way = worker.submit(job)
    waiting.append(worker.submit(lambda: "never"))
    assert started.wait(PATIENCE)
    worker.stop()
    assert under_way.result(0) == "done"
    with pytest.raises(CancelledError):
        waiting[0].result(0)
    with pytest.raises(RuntimeError):
        worker.submit(lambda: None)
