"""Twenty visitors who do anything at any time, with memory for five of them and a thread that dies now and then.

Each keeps comparing its run with the same one alone. At the end no promise is left and no future hangs.
"""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

import pytest

from core.engine import engine as engine_module
from core.engine import residents as residents_module
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.recorder import RecordConfig
from core.engine.run import Interrupted, Run
from core.model.load import LanguageModel
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.engines import PATIENCE, Heard, alone, answer, room_for, wait_until
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, new_run

N_VISITORS, SECONDS, MOST_SECONDS, MAX_NEW = 20, 2.5, 30, 24
KINDS: list[tuple[int, dict[str, Any]]] = [
    (5, {}),
    (70, {"prefill_chunk": 16}),
    (40, {"prefill_chunk": 8, "record": RecordConfig(queries=True, attention=(1, 2))}),
    (62, {"sampling": SAMPLED, "record": RecordConfig(kv_norms=True, candidates=3)}),
    (20, {"use_cache": False, "prefill_chunk": 9}),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("stress") / "m")[1]


@pytest.fixture(scope="module")
def peers(model: LanguageModel) -> list[Run]:
    """Each kind of run, alone, to its end."""
    return [alone(model, random_ids(n), MAX_NEW, max_new=MAX_NEW, **settings) for n, settings in KINDS]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that takes seconds takes milliseconds; what only the collector would give back stays."""
    monkeypatch.setattr(residents_module, "REST_SECONDS", 0.01)
    monkeypatch.setattr(residents_module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(engine_module, "QUEUE_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "RESTART_SECONDS", 0.005)
    monkeypatch.setattr(logging.getLogger("core.engine.failures"), "disabled", True)  # pytest keeps what is logged
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Visitor:
    """One who does whatever its dice say, and looks whether its run is still what it would be alone."""

    def __init__(self, engine: Engine, model: LanguageModel, peers: list[Run], seed: int) -> None:
        self.engine, self.model, self.peers, self.dice = engine, model, peers, random.Random(seed)
        self.futures: list[Future[Any]] = []
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        kind = self.dice.randrange(len(KINDS))
        n_prompt, settings = KINDS[kind]
        self.peer = self.peers[kind]
        self.run = new_run(self.model, random_ids(n_prompt), max_new=MAX_NEW, **settings)

    def live(self, over: threading.Event) -> None:
        actions = [self.step] * 8 + [self.steps, self.look, self.undo, self.undo_by_a_job, self.cancel, self.fail]
        actions += [self.leave, self.leave_at_work]
        try:
            while not over.is_set():
                action = self.dice.choice(actions)
                action()
                self.done[action.__name__] += 1
                self.compare()
            self.step()
            self.compare()
        except BaseException as error:
            self.error = error
        finally:
            del self.run

    def compare(self) -> None:
        n = len(self.run.steps)
        assert self.run.output_ids == self.peer.output_ids[:n]
        assert self.peer.text.startswith(self.run.text)

    def ask(self, steps: bool = True, end: Callable[..., Any] = answer) -> Future[Any]:
        run = self.run
        future = (self.engine.step if steps else self.engine.look)("", lambda: run, end)
        self.futures.append(future)
        return future

    def step(self) -> None:
        n_before = len(self.run.steps)
        self.counted(n_before, self.ask())

    def steps(self) -> None:
        n_before = len(self.run.steps)
        self.counted(n_before, *(self.ask() for _ in range(3)))

    def counted(self, n_before: int, *futures: Future[Any]) -> None:
        """The run has one step more for each that was done, and none for one that failed or found the end."""
        for future in futures:
            try:
                n_before += future.result(PATIENCE) is not None
            except Refusal as refused:
                assert refused.key == "engine.step_failed"
                self.done["refused"] += 1
        assert len(self.run.steps) == n_before

    def look(self) -> None:
        def looks(run: Run, event: Any, error: Any) -> None:
            assert error is not None or run.is_resident
            if error is None and run.cache is not None and run.steps and run.config.record.queries:
                number = self.dice.randrange(len(run.steps))
                row, expected = run.attention(number, 0, 1), self.peer.attention(number, 0, 1)
                assert abs(row.weights - expected.weights).max() < 1e-4

        first, second, third = self.ask(False, looks), self.ask(), self.ask(False, looks)
        first.result(PATIENCE)
        second.exception(PATIENCE)
        third.result(PATIENCE)

    def undo(self) -> None:
        self.ask(False, lambda run, event, error: run.step_back() if error is None else None).result(PATIENCE)

    def undo_by_a_job(self) -> None:
        """While a step of it waits or is computed, chunk by chunk."""
        run, step = self.run, self.ask()
        self.engine.submit(run.step_back).result(PATIENCE)
        step.exception(PATIENCE)

    def cancel(self) -> None:
        n_before, future = len(self.run.steps), self.ask()
        time.sleep(self.dice.random() * 0.004)
        if not future.cancel():
            self.counted(n_before, future)
        else:
            self.engine.submit(lambda: None).result(PATIENCE)

    def fail(self) -> None:
        def failing(*_: Any) -> None:
            raise ZeroDivisionError

        assert isinstance(self.ask(end=failing).exception(PATIENCE), ZeroDivisionError)

    def leave(self) -> None:
        self.begin_anew()

    def leave_at_work(self) -> None:
        future = self.ask()
        time.sleep(self.dice.random() * 0.004)
        if self.dice.random() < 0.7:
            self.run.interrupt()
        if self.dice.random() < 0.5:
            future.cancel()
        self.begin_anew()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("deadly", [False, True])
def test_twenty_visitors_who_do_anything_at_any_time(
    model: LanguageModel, peers: list[Run], hurried: None, monkeypatch: pytest.MonkeyPatch, seed: int, deadly: bool
) -> None:
    heard, dice = Heard(), random.Random(seed)
    engine = Engine(lambda: room_for(5, peers[1]), [heard])
    logits = Transformer.logits

    def dies_now_and_then(self: Transformer, hidden: Any) -> Any:
        if deadly and threading.current_thread().name == "engine" and dice.random() < 0.004:
            raise SystemExit
        return logits(self, hidden)

    def die() -> None:
        raise SystemExit

    monkeypatch.setattr(Transformer, "logits", dies_now_and_then)
    visitors = [Visitor(engine, model, peers, seed * 100 + number) for number in range(N_VISITORS)]
    began, over = time.monotonic(), threading.Event()
    threads = [threading.Thread(target=visitor.live, args=[over]) for visitor in visitors]
    for thread in threads:
        thread.start()
    others: list[Future[Any]] = []
    most_queued = 0

    def is_enough() -> bool:
        """Everything has happened that is meant to: on a slow machine that takes longer."""
        done = sum((visitor.done for visitor in visitors), Counter[str]())
        happened = heard.drops and most_queued > 2 and max((batch for _, _, batch in heard.passes), default=0) > 2
        kinds = len(done - Counter(refused=done["refused"]))
        return bool(happened) and kinds == 9 and (status.n_restarts > 2 or not deadly)

    while any(thread.is_alive() for thread in threads):
        status = engine.status()
        most_queued = max(most_queued, status.n_queued)
        assert status.promised_bytes <= status.budget_bytes
        seconds = time.monotonic() - began
        if seconds > MOST_SECONDS or (seconds > SECONDS and is_enough()):
            over.set()
            time.sleep(0.02)
            continue
        others += [engine.sweep(), engine.measure(Measurement("m", [lambda: 1])).future]
        if deadly and dice.random() < 0.1:
            others.append(engine.submit(die))
        time.sleep(0.02)
    assert is_enough()
    for visitor in visitors:
        if visitor.error is not None:
            raise visitor.error
    futures = [future for visitor in visitors for future in visitor.futures]
    assert not wait_for([*futures, *others], PATIENCE).not_done
    assert {type(future.exception()) for future in futures if not future.cancelled()} <= {
        type(None),
        Refusal,
        Interrupted,
        ZeroDivisionError,
    }
    wait_until(lambda: engine.status().promised_bytes == 0)
    status = engine.status()
    assert not status.seats and status.held_bytes == 0 and not engine._scheduler.turns
    done = sum((visitor.done for visitor in visitors), Counter[str]())
    assert (status.n_restarts > 2) == deadly and (deadly or not done["refused"])
    engine.stop()
