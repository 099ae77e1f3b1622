"""The engine's thread: turns, jobs, a clean end, no CPU while idle, and a new thread when one dies. Nobody hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import pytest

from core.engine import engine as engine_module
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.run import Interrupted, Run
from core.model.load import LanguageModel
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE, Heard, alone, answer, gate, play, room_for, step, wait_until
from tests.peer import random_ids, random_pair
from tests.runs import new_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("thread") / "m")[1]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def engine(heard: Heard) -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES, [heard])
    yield engine
    engine.stop()


# --- turns and jobs


def test_jobs_run_one_after_another_in_one_other_thread(engine: Engine) -> None:
    order: list[int] = []

    def job(number: int) -> str:
        order.append(number)
        time.sleep(0.001)
        order.append(number)
        return threading.current_thread().name

    names = {future.result(PATIENCE) for future in [engine.submit(lambda n=n: job(n)) for n in range(20)]}
    assert order == [n for n in range(20) for _ in range(2)] and names == {"engine"}


def test_an_error_of_a_job_goes_to_the_one_who_waits_and_the_next_job_runs(engine: Engine) -> None:
    failing, following = engine.submit(lambda: [][0]), engine.submit(lambda: "fine")
    with pytest.raises(IndexError):
        failing.result(PATIENCE)
    assert following.result(PATIENCE) == "fine"


def test_the_answer_is_what_end_returns_or_raises_in_the_engines_thread(engine: Engine, model: LanguageModel) -> None:
    run = new_run(model, random_ids(5))
    name = step(engine, run, lambda run, event, error: threading.current_thread().name).result(PATIENCE)
    assert name == "engine"

    def failing(run: Run | None, event: Any, error: BaseException | None) -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError):
        step(engine, run, failing).result(PATIENCE)
    assert engine.step("", lambda: None, lambda *given: given).result(PATIENCE) == (None, None, None)
    assert play(engine, run, 1).output_ids == alone(model, random_ids(5), 3).output_ids


def test_what_begin_raises_is_a_sentence_and_a_refusal_stays_what_it_is(engine: Engine) -> None:
    for raised, key in (
        (ValueError("?"), "engine.step_failed"),
        (Refusal("engine.prompt_empty"), "engine.prompt_empty"),
    ):

        def begin(raised: Exception = raised) -> Run:
            raise raised

        with pytest.raises(Refusal) as refused:
            engine.step("", begin, answer).result(PATIENCE)
        assert refused.value.key == key


def test_what_is_cancelled_before_its_turn_is_not_begun(engine: Engine) -> None:
    leave, begun = gate(engine), list[int]()
    turn = engine.step("", lambda: begun.append(1), answer)
    job = engine.submit(lambda: begun.append(2))
    assert turn.cancel() and job.cancel()
    leave.set()
    engine.submit(lambda: None).result(PATIENCE)
    assert not begun


@pytest.mark.parametrize("stopped", [False, True])
def test_who_waits_for_what_was_cancelled_is_told(model: LanguageModel, stopped: bool) -> None:
    """`concurrent.futures.wait` wakes up only when whoever holds the work has seen that it was cancelled."""
    engine = Engine(lambda: room_for(1, new_run(model, random_ids(5))))
    inside, *queued = (new_run(model, random_ids(5, seed=seed)) for seed in range(3))
    play(engine, inside, 1)
    futures: list[Future[Any]] = [step(engine, run) for run in queued]
    wait_until(lambda: engine.status().n_queued == 2)
    leave = gate(engine)
    futures += [step(engine, inside), engine.submit(int)]
    if not stopped:
        assert all(future.cancel() for future in futures)
    threading.Timer(0.02, leave.set).start()
    if stopped:
        engine.stop()
    assert not wait(futures, PATIENCE / 4).not_done
    engine.stop()


def test_cancelled_behind_begin_leaves_the_run_as_it_was(engine: Engine, model: LanguageModel) -> None:
    run = play(engine, new_run(model, random_ids(5)), 2)
    holder: list[Future[Any]] = []

    def begin() -> Run:
        assert holder[0].cancel()
        return run

    leave = gate(engine)
    holder.append(engine.step("", begin, answer))
    leave.set()
    engine.submit(lambda: None).result(PATIENCE)
    assert len(play(engine, run, 1).steps) == 3
    wait_until(lambda: not engine._scheduler.turns)


def test_an_interrupt_ends_a_pass_at_its_next_layer(
    engine: Engine, model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(model, random_ids(64), prefill_chunk=16)
    through = Transformer._mlp

    def then_gone(self: Transformer, *given: Any) -> Any:
        if len(run.cache._layers[0][0]) >= 32:  # in the middle of the second chunk
            run.interrupt()
        return through(self, *given)

    monkeypatch.setattr(Transformer, "_mlp", then_gone)
    with pytest.raises(Interrupted):
        step(engine, run).result(PATIENCE)
    assert not run.steps and run.held_bytes == 0 and engine.status().promised_bytes == 0


def test_what_hands_in_anew_each_time_keeps_nobody_waiting(engine: Engine, model: LanguageModel) -> None:
    """From the engine's thread itself: jobs that submit a job, looks that ask for a look, steps for a step."""
    run, over, counted = play(engine, new_run(model, random_ids(5)), 1), threading.Event(), [0, 0, 0]

    def job() -> None:
        counted[0] += 1
        if not over.is_set():
            engine.submit(job)

    def looked(run: Run | None, event: Any, error: Any) -> None:
        counted[1] += 1
        if not over.is_set():
            engine.look("", lambda: run, looked)

    other = new_run(model, random_ids(7), max_new=500)

    def stepped(run: Run | None, event: Any, error: Any) -> None:
        counted[2] += 1
        if not over.is_set():
            step(engine, other, stepped)

    engine.submit(job)
    engine.look("", lambda: run, looked)
    step(engine, other, stepped)
    try:
        assert play(engine, run, 10).output_ids == alone(model, random_ids(5), 11).output_ids
    finally:
        over.set()
    assert min(counted) >= 5


def test_waiting_for_work_costs_no_cpu(engine: Engine, model: LanguageModel) -> None:
    play(engine, new_run(model, random_ids(5)), 2)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


# --- waiting a moment for the others


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that waits for those of the last pass as long as it takes."""
    monkeypatch.setattr(engine_module, "LINGER_SECONDS", PATIENCE)
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def test_those_of_the_last_pass_are_waited_for_and_nobody_else(
    model: LanguageModel, patient: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [new_run(model, random_ids(5, seed=seed)) for seed in range(2)]

    def ask(run: Run) -> Future[Any]:
        return patient.step("", lambda: run, answer)

    for run in runs:
        ask(run).result(PATIENCE)
    gate = threading.Event()
    held = patient.submit(lambda: gate.wait(PATIENCE))
    together = [ask(run) for run in runs]
    gate.set()
    assert held.result(PATIENCE) and [each.result(PATIENCE).batch for each in together] == [2, 2]
    first = ask(runs[0])
    time.sleep(0.05)
    assert not first.done(), "the other one was not waited for"
    assert [ask(runs[1]).result(PATIENCE).batch, first.result(PATIENCE).batch] == [2, 2]
    with monkeypatch.context() as hasty:
        hasty.setattr(engine_module, "LINGER_SECONDS", 0.2)
        began = time.monotonic()
        assert ask(runs[0]).result(PATIENCE).batch == 1
        assert time.monotonic() - began > 0.18
    for _ in range(5):  # who is alone waits for nobody: it would take more than this patience
        ask(runs[0]).result(PATIENCE / 2)


# --- the end


def test_stop_finishes_what_is_under_way_and_wakes_the_rest(model: LanguageModel) -> None:
    engine, entered = Engine(lambda: MANY_BYTES), threading.Event()

    def until_stopped() -> bool:
        entered.set()
        wait_until(lambda: engine._stopping)
        return True

    under_way = engine.submit(until_stopped)
    assert entered.wait(PATIENCE)
    job, turn = engine.submit(lambda: 1), step(engine, new_run(model, random_ids(5)))
    measurement = engine.measure(Measurement("never", [lambda: 1]))
    engine.stop()
    assert under_way.result(0) is True and measurement.future.result(0) == []
    for future in (job, turn):
        with pytest.raises(CancelledError):
            future.result(0)
    for hand_in in (lambda: engine.submit(int), lambda: engine.step("", lambda: None, answer)):
        with pytest.raises(RuntimeError):
            hand_in()
    engine.stop()


def test_stop_in_the_middle_of_a_prefill_says_so(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, entered = Engine(lambda: MANY_BYTES), threading.Event()
    through = Transformer._mlp

    def until_stopped(self: Transformer, *given: Any) -> Any:
        entered.set()
        wait_until(lambda: engine._stopping)
        return through(self, *given)

    monkeypatch.setattr(Transformer, "_mlp", until_stopped)
    future = step(engine, new_run(model, random_ids(400), prefill_chunk=1))
    assert entered.wait(PATIENCE)
    engine.stop()
    with pytest.raises(Refusal) as refused:
        future.result(0)
    assert refused.value.key == "engine.stopped"


@pytest.mark.parametrize("from_where", ["job", "end", "begin", "point"])
def test_the_engines_own_thread_may_stop_it(model: LanguageModel, from_where: str) -> None:
    engine = Engine(lambda: MANY_BYTES)
    run = new_run(model, random_ids(5))
    future: Future[Any]
    if from_where == "job":
        future = engine.submit(engine.stop)
    elif from_where == "end":
        future = step(engine, run, lambda *given: engine.stop())
    elif from_where == "begin":
        future = engine.step("", engine.stop, answer)  # type: ignore[arg-type]
    else:
        future = engine.measure(Measurement("m", [engine.stop])).future
    future.result(PATIENCE)
    engine.stop()
    assert not engine._supervisor.is_alive()
