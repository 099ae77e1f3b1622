"""Who computes together, in which order, and that nobody can tell from the results. Driven by hand, round by round."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.engine import finish as finish_module
from core.engine import scheduler as scheduler_module
from core.engine.recorder import RecordConfig
from core.engine.run import Run
from core.engine.trace import Phase
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.engines import ByHand, alone
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, assert_same_contents, contents, facts, new_run, next_logits

WIDE = RecordConfig(candidates=4, kv_norms=True, queries=True, attention=(1, 2))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[LanguageModel, LanguageModel]:
    folder = tmp_path_factory.mktemp("batching")
    one, other = (random_pair(kind, folder / kind)[1] for kind in ("qwen3", "llama"))
    return replace(one, name="one"), replace(other, name="other")


@pytest.fixture(scope="module")
def model(models: tuple[LanguageModel, LanguageModel]) -> LanguageModel:
    return models[0]


def prefilled(hand: ByHand, model: LanguageModel, n_runs: int, **settings: Any) -> list[Run]:
    runs = [new_run(model, random_ids(4 + 3 * index, seed=index), **settings) for index in range(n_runs)]
    hand.finish(*(hand.step(run) for run in runs))
    return runs


def decodes(hand: ByHand) -> list[int]:
    """The batch of every decode pass so far."""
    return [batch for _, phase, batch in hand.heard.passes if phase is Phase.DECODE]


# --- together as alone


def test_steps_that_wait_together_are_one_pass(model: LanguageModel) -> None:
    hand = ByHand()
    runs = prefilled(hand, model, 5)
    futures = [hand.step(run) for run in runs]
    assert decodes(hand) == [] and hand.scheduler.n_decodes == 5
    hand.rounds()
    assert decodes(hand) == [5]
    assert all(future.result(0).batch == 5 for future in futures) and not hand.scheduler.round()


def test_nobody_can_tell_from_the_results_who_shared_the_pass(model: LanguageModel) -> None:
    """Ragged lengths, over the end of a block; own sampling, seeds, records; chunks; one without a cache."""
    settings: list[dict[str, Any]] = [
        {},
        {"sampling": SAMPLED, "record": WIDE},
        {"sampling": SAMPLED, "record": WIDE, "prefill_chunk": 7},
        {"sampling": replace(SAMPLED, seed=5, repetition_penalty=1.3), "record": RecordConfig(kv_norms=True)},
        {"use_cache": False, "sampling": SAMPLED},
        {"prefill_chunk": 16, "record": RecordConfig(attention=(0, 3))},
        {"max_new": 3},
    ]
    prompts = [random_ids(n, seed=n) for n in (3, 60, 60, 17, 30, 90, 8)]
    runs = [new_run(model, ids, **each) for ids, each in zip(prompts, settings, strict=True)]
    hand = ByHand()
    for _ in range(12):
        hand.finish(*(hand.step(run) for run in runs))
    assert max(decodes(hand)) >= 5, "they did not decode together: this compares nothing"
    for run, ids, each in zip(runs, prompts, settings, strict=True):
        peer = alone(model, ids, 12, **each)
        assert run.output_ids == peer.output_ids and run.text == peer.text and run.trace.text == peer.trace.text
        assert [facts(event) for event in run.steps] == [facts(event) for event in peer.steps]
        for event, other in zip(run.steps, peer.steps, strict=True):
            for name in ("key_norms", "value_norms"):
                a, b = getattr(event.recorded, name), getattr(other.recorded, name)
                assert (a is None) == (b is None)
                assert a is None or abs(a - b).max() < 1e-4
            if event.recorded.attention is not None and other.recorded.attention is not None:
                assert abs(event.recorded.attention.weights - other.recorded.attention.weights).max() < 1e-4
        for query, other_query in zip(run.queries, peer.queries, strict=True):
            torch.testing.assert_close(query, other_query, rtol=0, atol=1e-4)
        if run.cache is not None:
            torch.testing.assert_close(next_logits(run), next_logits(peer), rtol=0, atol=1e-4)
            assert_same_contents(contents(run), contents(peer), 1e-4)


def test_only_the_one_whose_step_fails_hears_of_it(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, poison = ByHand(), SamplingConfig(temperature=1, seed=666)
    runs = prefilled(hand, model, 3)
    bad = new_run(model, random_ids(9), sampling=poison)
    hand.finish(hand.step(bad))
    choose = finish_module.choose

    def choking(logits: Any, config: SamplingConfig, *rest: Any, **more: Any) -> int:
        if config.seed == 666:
            raise ZeroDivisionError("injected")
        return choose(logits, config, *rest, **more)

    monkeypatch.setattr(finish_module, "choose", choking)
    futures = [hand.step(run) for run in (*runs[:2], bad, runs[2])]
    hand.rounds()
    with pytest.raises(Refusal) as refused:
        futures.pop(2).result(0)
    assert refused.value.key == "engine.step_failed"
    assert refused.value.sentence("zh") != refused.value.sentence("en") and hand.heard.failures
    assert all(future.result(0) is run.steps[-1] for future, run in zip(futures, runs, strict=True))
    assert [len(run.steps) for run in (*runs, bad)] == [2, 2, 2, 1]
    monkeypatch.undo()
    hand.finish(*(hand.step(run) for run in (*runs, bad)))
    for run in runs:
        assert run.output_ids == alone(model, list(run.prompt_ids), 3).output_ids
    assert bad.output_ids == alone(model, random_ids(9), 2, sampling=poison).output_ids


def test_each_model_has_its_own_pass_in_a_round(models: tuple[LanguageModel, LanguageModel]) -> None:
    hand = ByHand()
    runs = [run for model in models for run in prefilled(hand, model, 2)]
    mixed = [runs[0], runs[2], runs[1], runs[3]]
    futures = [hand.step(run) for run in mixed]
    hand.rounds()
    assert all(future.done() for future in futures)
    passes = [(name, batch) for name, phase, batch in hand.heard.passes if phase is Phase.DECODE]
    assert passes == [("one", 2), ("other", 2)]
    assert all(run.output_ids == alone(run.model, list(run.prompt_ids), 2).output_ids for run in runs)


# --- order and fairness


def test_a_long_prefill_and_those_who_decode_take_turns(model: LanguageModel) -> None:
    """Ten chunks: each decoder has its step in each of the ten rounds, and no round goes without a chunk."""
    hand = ByHand()
    runs = prefilled(hand, model, 3)
    long = hand.step(new_run(model, random_ids(160), prefill_chunk=16))
    for number in range(1, 11):
        assert not long.done()
        steps = [hand.step(run) for run in runs]
        hand.rounds()
        assert all(step.done() for step in steps), "a prefill kept the others waiting"
        assert [len(run.steps) for run in runs] == [1 + number] * 3
    assert long.done(), "those who decode kept the prefill waiting"


def test_prefills_take_turns_chunk_by_chunk(model: LanguageModel) -> None:
    """The short one that came last is through after one chunk of each, not behind the long ones."""
    hand = ByHand()
    longs = [hand.step(new_run(model, random_ids(96, seed=seed), prefill_chunk=16)) for seed in range(2)]
    short = hand.step(new_run(model, random_ids(10), prefill_chunk=16))
    hand.rounds(3)
    assert short.done() and not any(long.done() for long in longs)
    hand.rounds(10)
    assert all(long.done() for long in longs)


def test_a_pass_takes_those_who_have_waited_longest(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_IN_A_PASS", 3)
    hand, order = ByHand(), list[int]()
    runs = prefilled(hand, model, 5)

    def ask(index: int) -> Future[Any]:
        return hand.step(runs[index], end=lambda run, event, error: order.append(index))

    for index in (4, 0, 3, 1):
        ask(index)
    hand.rounds()
    assert order == [4, 0, 3]
    for index in (4, 0, 2):
        ask(index)
    hand.rounds(2)
    assert order == [4, 0, 3, 1, 4, 0, 2] and decodes(hand) == [3, 3, 1]


# --- one thing at a time for each run


def test_two_steps_of_one_run_are_two_steps(model: LanguageModel) -> None:
    hand = ByHand()
    run, other = prefilled(hand, model, 2)
    events = hand.finish(hand.step(run), hand.step(other), hand.step(run), hand.step(run))
    assert [event.n_tokens for event in events if event in run.steps] == [5, 6, 7]
    assert run.output_ids == alone(model, list(run.prompt_ids), 4).output_ids


def test_what_is_asked_of_a_run_is_done_in_order_also_between_two_rounds(model: LanguageModel) -> None:
    hand, order = ByHand(), list[int]()
    run = prefilled(hand, model, 1)[0]

    def ask(number: int, *, steps: bool) -> Future[Any]:
        return (hand.step if steps else hand.look)(run, end=lambda *_: order.append(number))

    futures = [ask(0, steps=True), ask(1, steps=True)]
    hand.rounds()
    futures.append(ask(2, steps=False))  # the run is at rest, and still there is one before it
    hand.finish(*futures)
    assert order == [0, 1, 2]


def test_a_step_behind_the_last_one_finds_nothing_to_do(model: LanguageModel) -> None:
    hand = ByHand()
    run = new_run(model, random_ids(5), max_new=1)
    assert hand.finish(hand.step(run), hand.step(run)) == [run.steps[0], None]


@pytest.mark.parametrize("n_looks", [2, 3])
def test_looks_and_steps_into_a_dropped_cache_share_one_refill(model: LanguageModel, n_looks: int) -> None:
    """A returning visitor's browser asks for attention and for vectors at once, and they press Decode."""
    hand, ids = ByHand(), random_ids(50)
    settings: dict[str, Any] = {"prefill_chunk": 16, "record": WIDE}
    run, peer = new_run(model, ids, **settings), alone(model, ids, 6, **settings)
    for _ in range(4):
        hand.finish(hand.step(run))
    hand.residents.let_go(run)
    seen: list[int] = []

    def end(run: Run | None, event: Any, error: BaseException | None) -> None:
        assert run is not None and error is None
        row, expected = run.attention(3, 1, 0), peer.attention(3, 1, 0)
        assert abs(row.weights - expected.weights).max() < 1e-4
        seen.append(len(run.steps))

    looks = [hand.look(run, end=end) for _ in range(n_looks - 1)]
    steps = [hand.step(run)]
    looks.append(hand.look(run, end=end))
    hand.finish(*looks, *steps, hand.step(run))
    assert seen == [4] * (n_looks - 1) + [5]
    assert run.output_ids == peer.output_ids
    assert_same_contents(contents(run), contents(peer), 1e-4)


def test_a_look_during_the_prefill_waits_for_its_end(model: LanguageModel) -> None:
    hand = ByHand()
    run = new_run(model, random_ids(40), prefill_chunk=8)
    step, seen = hand.step(run), list[int]()
    hand.rounds(2)
    look = hand.look(run, end=lambda run, event, error: seen.append(len(run.steps)))
    assert not look.done()
    hand.finish(step, look)
    assert seen == [1]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("n_rounds", [0, 1, 2])
def test_a_step_undone_amid_another_spoils_nothing(model: LanguageModel, n_rounds: int, use_cache: bool) -> None:
    """By a job between two chunks of a refill or of a recomputed prefix, or while a decode step waits."""
    for n_back, dropped in ((1, True), (3, True), (1, False), (3, False)):
        hand, ids = ByHand(), random_ids(30)
        run = new_run(model, ids, prefill_chunk=10, use_cache=use_cache, sampling=SAMPLED)
        for _ in range(3):
            hand.finish(hand.step(run))
        if dropped:
            hand.residents.let_go(run)
        future = hand.step(run)
        if dropped or not use_cache:
            hand.rounds(n_rounds)
        for _ in range(n_back):
            run.step_back()
        hand.finish(future)
        hand.finish(hand.step(run))
        assert run.output_ids == alone(model, ids, 5 - n_back, sampling=SAMPLED).output_ids
