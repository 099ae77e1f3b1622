"""The engine: one thread that computes for all visitors, what they hand it, and somebody who notices when it dies."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from core.engine.exclusive import ExclusiveSlot, Measurement
from core.engine.failures import told, without_frames
from core.engine.meters import Meters
from core.engine.residents import Residents
from core.engine.run import Run
from core.engine.scheduler import Scheduler
from core.engine.seats import seats
from core.engine.status import Listener, Status
from core.engine.turn import Begin, End, Turn

Result = TypeVar("Result")

LINGER_SECONDS = 0.003
"""How long a pass waits for those who were in the last one: their answers to it are on their way."""
QUEUE_SECONDS = 0.1
"""How often the engine looks whether memory came back for those who wait for it."""
RESTART_SECONDS = 0.05


class Engine:
    """Hand it turns, jobs and measurements from any thread; what comes of them is in their futures.

    With nothing to do it waits and costs no CPU. `budget_bytes` is asked once, when the first run comes.
    """

    def __init__(
        self,
        budget_bytes: Callable[[], int],
        listeners: Sequence[Listener] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._listener = Listeners(listeners)
        self._meters = Meters(clock)
        self._residents = Residents(
            budget_bytes, clock, lambda run, n_bytes: self._listener.dropped(run.model.name, n_bytes)
        )
        self._scheduler = Scheduler(self._residents, self._meters, self._listener)
        self._exclusive = ExclusiveSlot(self._residents)
        self._inbox: deque[Turn | Measurement | tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wakes = threading.Condition()
        self._stopping = False
        self._n_restarts = 0
        self._lost: list[Turn] = []  # which a dead thread left behind
        self._thread: threading.Thread | None = None
        self._supervisor = threading.Thread(target=self._supervise, name="engine-supervisor", daemon=True)
        self._supervisor.start()

    def step(self, tag: str, begin: Begin, end: End) -> Future[Any]:
        """The next step of the run that `begin` gives: together with others that wait, or, a prefix, in chunks.

        See `Turn`. Raises RuntimeError after `stop`, like all of these.
        """
        turn = Turn(tag, begin, end, steps=True)
        self._hand_in(turn)
        return turn.future

    def look(self, tag: str, begin: Begin, end: End) -> Future[Any]:
        """Something that needs a run's cache and computes no step: a dropped cache is refilled first."""
        turn = Turn(tag, begin, end, steps=False)
        self._hand_in(turn)
        return turn.future

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """A short job between two passes."""
        future: Future[Result] = Future()
        self._hand_in((job, future))
        return future

    def measure(self, measurement: Measurement) -> Measurement:
        """Puts a measurement in the line for the exclusive slot."""
        self._hand_in(measurement)
        return measurement

    def place_of_measurement(self, measurement: Measurement) -> int:
        """0 while it is measured, 1 for the next one; −1 when it is over or not yet taken up."""
        return self._exclusive.place(measurement)

    def place(self, run: Run) -> int:
        """A run's place in the queue for memory, 1 being next; 0 when it does not wait there."""
        waiting = [turn.run for turn in list(self._scheduler.queue)]
        return waiting.index(run) + 1 if run in waiting else 0

    @property
    def is_measuring(self) -> bool:
        """Whether a measurement has the exclusive slot, so that steps may wait up to a second for one of its points."""
        return bool(self._exclusive)

    def status(self) -> Status:
        """The engine as it is now; may be asked from any thread."""
        return Status(
            seats=seats(self._residents, self._scheduler, self._clock()),
            models=self._meters.status(),
            budget_bytes=self._residents.budget_bytes,
            promised_bytes=self._residents.promised_bytes,
            held_bytes=self._residents.held_bytes,
            n_queued=len(self._scheduler.queue),
            n_restarts=self._n_restarts,
            measuring=self._exclusive.status,
        )

    def sweep(self) -> Future[int]:
        """Gives back the caches of those who have rested long; the bytes, when it is done."""
        return self.submit(self._residents.sweep)

    def stop(self) -> None:
        """Lets the pass under way finish, wakes everybody who waits, and joins the thread.

        What the engine itself calls may stop it too; then it ends behind that.
        """
        with self._wakes:
            self._stopping = True
            self._wakes.notify_all()
        if threading.current_thread() not in (self._thread, self._supervisor):
            self._supervisor.join()

    def _hand_in(self, item: Turn | Measurement | tuple[Callable[[], Any], Future[Any]]) -> None:
        with self._wakes:
            if self._stopping:
                raise RuntimeError("the engine has stopped")
            self._inbox.append(item)
            self._wakes.notify()

    def _supervise(self) -> None:
        """Begins the thread, and begins it again whenever it dies."""
        while True:
            died_of: list[BaseException] = []
            self._thread = threading.Thread(target=self._live, args=[died_of], name="engine", daemon=True)
            self._thread.start()
            self._thread.join()
            if not died_of:
                return
            self._n_restarts += 1
            self._listener.restarted(died_of[0])
            without_frames(died_of.pop())
            self._lost = list(dict.fromkeys([*self._scheduler.recover(), *self._lost]))
            time.sleep(RESTART_SECONDS)

    def _live(self, died_of: list[BaseException]) -> None:
        try:
            while self._lost:
                self._scheduler.add(self._lost[0])
                self._lost.pop(0)
            while self._take_up():
                worked = self._scheduler.round()
                self._exclusive.step(others_wait=worked)
            self._give_up()
        except BaseException as error:
            died_of.append(error)

    def _take_up(self) -> bool:
        """Waits for something to do and takes up all that has come; False when the engine is to stop."""
        with self._wakes:
            while not (self._inbox or self._stopping or self._scheduler.has_work or self._exclusive):
                if not self._wakes.wait(QUEUE_SECONDS if self._scheduler.queue else None):
                    break
            if self._others_are_coming():
                self._wakes.wait_for(lambda: self._stopping or not self._others_are_coming(), LINGER_SECONDS)
        for _ in range(len(self._inbox)):  # and no more: what hands in anew each time must not keep the others waiting
            if self._stopping:
                break
            item = self._inbox.popleft()  # one by one: should the thread die of it, the others are not lost
            if isinstance(item, Turn):
                self._scheduler.add(item)
            elif isinstance(item, Measurement):
                self._exclusive.add(item)
            else:
                _carry_out(*item)
        return not self._stopping

    def _others_are_coming(self) -> bool:
        """Whether fewer wait than were in the last pass: those who are missing are about to ask again."""
        return 0 < self._scheduler.n_decodes + len(self._inbox) < self._scheduler.last_batch

    def _give_up(self) -> None:
        self._exclusive.give_up()
        for turn in self._scheduler.turns:
            turn.give_up()
        while self._inbox:  # nothing is handed in any more
            item = self._inbox.popleft()
            if isinstance(item, Turn):
                item.give_up()
            elif isinstance(item, Measurement):
                item.end()
            else:
                item[1].cancel()
                item[1].set_running_or_notify_cancel()


class Listeners:
    """Several listeners as one. What a listener raises harms nobody's step."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def __getattr__(self, name: str) -> Callable[..., None]:
        def tell(*news: object) -> None:
            for listener in self._listeners:
                try:
                    getattr(listener, name)(*news)
                except BaseException:  # one that ends a thread included: it may be the supervisor's
                    logging.getLogger(__name__).exception("A listener of the engine failed.")

        return tell


def _carry_out(job: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:
        future.set_exception(told(error))
        if not isinstance(error, Exception):
            raise
    else:
        future.set_result(result)
