"""The engine's thread dies: it is noticed, another one begins, and everybody gets what they would have got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from core.engine import finish as finish_module
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE, ByHand, Heard, alone, answer, gate, play, step
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, new_run


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


class Injected(SystemExit):
    """What a thread dies of."""


def once(after: Callable[..., Any] | None = None, times: int = 1) -> Callable[..., Any]:
    """Something that kills the thread that calls it, the first `times`; then it is `after`."""
    left = [times]

    def deadly(*given: Any, **more: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Injected
        return after(*given, **more) if after is not None else None

    return deadly


PLACES = ["pass", "prefix", "begin", "end", "job", "point", "sampling", "callback"]


@pytest.mark.parametrize("place", PLACES)
def test_a_thread_that_dies_is_begun_again_and_everybody_gets_their_text(
    engine: Engine, heard: Heard, model: LanguageModel, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [random_ids(5 + index, seed=index) for index in range(4)]
    runs = [play(engine, new_run(model, ids, sampling=SAMPLED), 2) for ids in prompts]
    fresh = new_run(model, random_ids(30), prefill_chunk=10)
    leave = gate(engine)
    futures = [step(engine, run) for run in runs]
    others: list[Future[Any]] = [step(engine, fresh)]
    if place == "pass":
        monkeypatch.setattr(Transformer, "logits", _deadly_once(Transformer.logits, monkeypatch))
    elif place == "prefix":
        monkeypatch.setattr(Transformer, "hidden", _deadly_once(Transformer.hidden, monkeypatch, only=10))
    elif place == "sampling":
        deadly = once(finish_module.choose)
        calls = [0]
        choose = finish_module.choose

        def second(*given: Any, **more: Any) -> Any:
            calls[0] += 1
            return deadly(*given, **more) if calls[0] == 2 else choose(*given, **more)

        monkeypatch.setattr(finish_module, "choose", second)
    elif place == "begin":
        others.append(engine.step("", once(lambda: runs[0]), answer))
    elif place == "job":
        others.append(engine.submit(once()))
    elif place == "point":
        others.append(engine.measure(Measurement("m", [once()])).future)
    elif place == "end":
        others.append(step(engine, new_run(model, random_ids(9)), once()))
    else:
        others[0].add_done_callback(once())
    leave.set()
    for future, run in zip(futures, runs, strict=True):
        assert future.result(PATIENCE) is run.steps[2], "a step was done twice, or not handed over"
    for other in others:
        if place in ("job", "point", "end") and other is others[-1]:
            with pytest.raises(Refusal):
                other.result(PATIENCE)
        else:
            other.result(PATIENCE)
    engine.submit(lambda: None).result(PATIENCE)
    assert engine.status().n_restarts == 1 and heard.restarts == ["Injected()"]
    for run, ids in zip(runs, prompts, strict=True):
        n_more = 2 if place == "begin" and run is runs[0] else 3
        assert play(engine, run, n_more).output_ids == alone(model, ids, 6, sampling=SAMPLED).output_ids
    assert play(engine, fresh, 2).output_ids == alone(model, random_ids(30), 3).output_ids
    assert not engine._scheduler.turns


def _deadly_once(through: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, only: int | None = None) -> Any:
    """A method that kills its thread at its first call (with so many new positions)."""
    left = [1]

    def deadly(self: Any, x: Any, *given: Any) -> Any:
        if left[0] and (only is None or x.shape[-1] == only):
            left[0] = 0
            raise Injected
        return through(self, x, *given)

    return deadly


@pytest.mark.parametrize("word", ["stepped", "failed", "restarted"])
def test_a_listener_that_dies_harms_nobody(model: LanguageModel, word: str) -> None:
    heard = Heard()
    setattr(heard, word, once(times=1000))
    engine = Engine(lambda: MANY_BYTES, [heard])
    run = play(engine, new_run(model, random_ids(5)), 2)
    with pytest.raises(Refusal):
        engine.submit(once()).result(PATIENCE)
    assert play(engine, run, 2).output_ids == alone(model, random_ids(5), 4).output_ids
    engine.stop()


@pytest.mark.parametrize("in_the_end_too", [False, True])
def test_who_kills_the_thread_each_time_is_told_and_the_others_go_on(
    engine: Engine, model: LanguageModel, monkeypatch: pytest.MonkeyPatch, in_the_end_too: bool
) -> None:
    """It sits in a batch: only the one that dies of itself is given up, though all were in the pass that died."""
    runs = [play(engine, new_run(model, random_ids(5 + n, seed=n)), 2) for n in range(3)]
    bad = play(engine, new_run(model, random_ids(9), sampling=SamplingConfig(temperature=1, seed=666)), 1)
    choose = finish_module.choose

    def deadly(logits: Any, config: SamplingConfig, *rest: Any, **more: Any) -> int:
        if config.seed == 666:
            raise Injected
        return choose(logits, config, *rest, **more)

    monkeypatch.setattr(finish_module, "choose", deadly)
    leave = gate(engine)
    ends = [answer, once() if in_the_end_too else answer, answer, answer]
    futures = [step(engine, run, end) for run, end in zip((runs[0], bad, *runs[1:]), ends, strict=True)]
    leave.set()
    with pytest.raises(Refusal) as refused:
        futures.pop(1).result(PATIENCE)
    assert refused.value.key == "engine.step_failed"
    assert [future.result(PATIENCE) for future in futures] == [run.steps[2] for run in runs]
    assert engine.status().n_restarts == 2 + in_the_end_too
    for run in runs:
        assert play(engine, run, 1).output_ids == alone(model, list(run.prompt_ids), 4).output_ids


def test_under_whom_the_thread_died_decodes_alone(model: LanguageModel) -> None:
    """Should it die of it again, nobody else is in that pass."""
    hand = ByHand()
    other, retried = (new_run(model, random_ids(n), prefill_chunk=3) for n in (5, 30))
    hand.finish(hand.step(other), hand.step(retried))
    future = hand.step(retried)
    hand.scheduler._take(model)  # in hand as the thread dies
    hand.die()
    while not future.done():
        event = hand.finish(hand.step(other))[0]
        assert event.batch == 1
    assert future.result(0).batch == 1
    assert hand.finish(hand.step(other), hand.step(retried))[1].batch == 2


def test_an_end_that_always_kills_is_called_once(engine: Engine, model: LanguageModel) -> None:
    calls: list[int] = []

    def end(*given: Any) -> None:
        calls.append(1)
        raise Injected

    run = new_run(model, random_ids(5))
    with pytest.raises(Refusal):
        step(engine, run, end).result(PATIENCE)
    assert play(engine, run, 1).output_ids == alone(model, random_ids(5), 2).output_ids
    assert calls == [1] and engine.status().n_restarts == 1
