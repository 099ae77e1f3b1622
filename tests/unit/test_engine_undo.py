"""Back and on again: a step undone, a run whose cache is gone, a step that fails half-way. None of it shows later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.engine import finish as finish_module
from core.engine.recorder import RecordConfig
from core.engine.run import Run
from core.engine.steps import decode_one_token, generate, refill, restore, step
from core.engine.trace import Phase
from core.model.cached_attention import CachedAttention
from core.model.load import LanguageModel
from core.model.sampling import Filtered, SamplingConfig
from core.model.text.text_stream import TextStream
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.peer import largest_difference, our_logits, random_ids, random_pair
from tests.runs import SAMPLED, advance, assert_same_contents, contents, facts, new_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("steps") / "m", num_hidden_layers=3)[1]


# --- stepping back


@pytest.mark.parametrize("sampling", [SamplingConfig(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("n_prompt", [5, 60, 64])
def test_going_back_and_on_equals_never_having_gone(
    model: LanguageModel, n_prompt: int, sampling: SamplingConfig
) -> None:
    """Over the end of a block (64), back to the prefill, and back to nothing."""
    ids = random_ids(n_prompt)
    straight = new_run(model, ids, sampling=sampling)
    advance(model, [straight], 8)
    for n_back in (1, 3, 7, 8):
        run = new_run(model, ids, sampling=sampling)
        advance(model, [run], 8)
        for _ in range(n_back):
            run.step_back()
        assert len(run.steps) == len(run.output_ids) == 8 - n_back
        assert run.cache is not None and run.cache.n_tokens == (n_prompt + 7 - n_back if n_back < 8 else 0)
        stream = TextStream(model.tokenizer, after=ids)
        assert "".join(stream.push(token_id) for token_id in run.output_ids) == stream.text == run.text
        advance(model, [run], n_back)
        assert run.output_ids == straight.output_ids
        assert_same_contents(contents(run), contents(straight))
        assert [facts(event) for event in run.steps] == [facts(event) for event in straight.steps]
        assert run.trace.text == straight.trace.text


def test_going_back_from_the_start_does_nothing(model: LanguageModel) -> None:
    run = new_run(model, random_ids(5))
    run.step_back()
    assert run.cache is not None and run.cache.n_tokens == 0 and not run.steps and run.stopped is None


def test_going_back_without_a_cache(model: LanguageModel) -> None:
    run, straight = (new_run(model, random_ids(5), use_cache=False, sampling=SAMPLED) for _ in range(2))
    advance(model, [run, straight], 4)
    run.step_back()
    run.step_back()
    assert len(run.ids) == 7
    advance(model, [run], 2)
    assert run.output_ids == straight.output_ids


def test_going_back_undoes_the_end_of_a_run(model: LanguageModel) -> None:
    run = new_run(model, random_ids(5), max_new=3)
    list(generate(model, run))
    assert str(run.stopped) == "length"
    first_time = list(run.output_ids)
    run.step_back()
    assert run.stopped is None
    list(generate(model, run))
    assert run.output_ids == first_time


@pytest.mark.parametrize("n_kept", [0, 1, 63, 64, 65, 128, 129])
def test_a_truncated_cache_continues_as_if_it_had_never_gone_further(model: LanguageModel, n_kept: int) -> None:
    ids, other = random_ids(140), random_ids(10, seed=5)
    with torch.inference_mode():
        truncated = model.transformer.new_cache()
        model.transformer.hidden(torch.tensor([ids]), [truncated])
        truncated.truncate(n_kept)
        after = model.transformer.logits(model.transformer.hidden(torch.tensor([other]), [truncated]))[0]
    assert largest_difference(after, our_logits(model, [*ids[:n_kept], *other])[n_kept:]) <= 1e-5


# --- a run whose cache is gone


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("chunks", [{}, {"prefill_chunk": 1}, {"prefill_chunk": 60}, {"prefill_chunk": 64}], ids=str)
@pytest.mark.parametrize("n_steps", [0, 1, 2, 6])
def test_a_restored_run_goes_on_as_if_it_had_never_been_away(
    model: LanguageModel, n_steps: int, use_cache: bool, chunks: dict[str, int]
) -> None:
    settings = {"sampling": SAMPLED, "use_cache": use_cache, "record": RecordConfig(queries=True)} | chunks
    straight, left = (new_run(model, random_ids(61), **settings) for _ in range(2))
    advance(model, [straight], 6)
    advance(model, [left], n_steps)
    run = restore(model, left.config, left.trace)
    assert run.ids == left.ids and run.steps == left.steps and run.text == left.text and run.stopped == left.stopped
    assert run.is_resident == (not use_cache or not n_steps)
    refill(run)
    if left.cache is not None:
        assert run.cache is not None and run.cache.n_tokens == left.cache.n_tokens
        assert run.cache.used_bytes == left.cache.used_bytes
        assert_same_contents(contents(run), contents(left), 1e-5)
        for index in range(n_steps):
            then, now = left.attention(index, 1, 2), run.attention(index, 1, 2)
            assert abs(then.weights - now.weights).max() <= 1e-6
    advance(model, [run], 6 - n_steps)
    assert run.output_ids == straight.output_ids and run.trace.text == straight.trace.text
    assert [facts(event) for event in run.steps] == [facts(event) for event in straight.steps]
    run.step_back()
    assert run.output_ids == straight.output_ids[:5]


def test_a_restored_run_that_had_ended_has_ended(model: LanguageModel) -> None:
    for max_new in (0, 1, 3):
        run = new_run(model, random_ids(5), max_new=max_new)
        list(generate(model, run))
        again = restore(model, run.config, run.trace)
        assert again.stopped == run.stopped and list(generate(model, again)) == []
        refill(again)
        assert again.cache is not None and run.cache is not None and again.cache.n_tokens == run.cache.n_tokens


def test_a_run_without_its_cache_can_go_back_and_on(model: LanguageModel) -> None:
    run, straight = (new_run(model, random_ids(5), record=RecordConfig(queries=True)) for _ in range(2))
    advance(model, [run, straight], 5)
    held = run.held_bytes
    run.drop_cache()
    assert not run.is_resident and run.held_bytes == 0 < held
    run.step_back()
    assert not run.is_resident and len(run.steps) == 4
    advance(model, [run], 1)
    assert run.output_ids == straight.output_ids and run.held_bytes == held


# --- failures half-way


class Snapshot:
    """A run as it is now, to be compared with what it is later."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.output_ids, self.steps, self.text = list(run.output_ids), list(run.steps), run.text
        self.n_tokens = run.cache.n_tokens if run.cache else None
        self.contents = contents(run) if run.cache else ()

    def assert_unchanged(self) -> None:
        run = self.run
        assert run.output_ids == self.output_ids and run.steps == self.steps and run.text == self.text
        if run.cache is not None:
            assert run.cache.n_tokens == self.n_tokens
            assert_same_contents(contents(run), self.contents)


def fails_on_call(function: Callable[..., Any], n_calls: int, problem: type[BaseException]) -> Callable[..., Any]:
    """`function`, but call number `n_calls` raises; calls after it work again."""
    calls = 0

    def wrapped(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == n_calls:
            raise problem
        return function(*arguments, **settings)

    return wrapped


def break_layer(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    """The second of three layers writes its keys and values, the third does not come to it."""
    patch.setattr(CachedAttention, "attend", fails_on_call(CachedAttention.attend, 3, problem))


def break_head(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    patch.setattr(Transformer, "logits", fails_on_call(Transformer.logits, 1, problem))


def break_sampling(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    patch.setattr(Filtered, "choose", fails_on_call(Filtered.choose, 1, problem))


def break_candidates(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    patch.setattr(finish_module, "filter_probabilities", fails_on_call(finish_module.filter_probabilities, 1, problem))


def break_text(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    patch.setattr(TextStream, "push", fails_on_call(TextStream.push, 1, problem))


def break_record(patch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    """After the token was chosen, while the event is put together."""
    patch.setattr(finish_module, "StepEvent", fails_on_call(finish_module.StepEvent, 1, problem))


BREAKS = [break_layer, break_head, break_sampling, break_candidates, break_text, break_record]


@pytest.mark.parametrize("problem", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("fault", BREAKS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("phase", list(Phase))
def test_a_step_that_fails_changes_nothing_and_the_next_one_works(
    model: LanguageModel,
    phase: Phase,
    fault: Callable[[pytest.MonkeyPatch, type[BaseException]], None],
    problem: type[BaseException],
) -> None:
    settings = {"use_cache": phase is not Phase.RECOMPUTE, "sampling": SAMPLED, "record": RecordConfig(candidates=3)}
    run, straight = (new_run(model, random_ids(63), **settings) for _ in range(2))
    n_before = 0 if phase is Phase.PREFILL else 2  # the failing decode step is the one that adds a block
    advance(model, [run], n_before)
    before = Snapshot(run)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(problem):
        fault(patch, problem)
        step(model, [run])
    before.assert_unchanged()
    advance(model, [run], 5 - n_before)
    advance(model, [straight], 5)
    assert run.output_ids == straight.output_ids
    assert [facts(event) for event in run.steps] == [facts(event) for event in straight.steps]
    assert run.trace.text == straight.trace.text


def test_a_batch_that_fails_at_its_second_row_leaves_whole_steps(model: LanguageModel) -> None:
    """The first run may have taken its step or not, the second has not; neither holds half of one."""
    runs = [new_run(model, random_ids(n, seed=n)) for n in (4, 7)]
    advance(model, runs, 2)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(finish_module, "choose", fails_on_call(finish_module.choose, 2, RuntimeError))
        decode_one_token(model, runs)
    assert len(runs[1].steps) == 2
    for run in runs:
        assert run.cache is not None and run.cache.n_tokens == run.steps[-1].n_tokens == len(run.ids) - 1
        assert len(run.steps) == len(run.output_ids)
    advance(model, runs, 3)
    for run, n in zip(runs, (4, 7), strict=True):
        alone = new_run(model, random_ids(n, seed=n))
        advance(model, [alone], len(run.steps))
        assert run.output_ids == alone.output_ids


def test_logits_that_are_no_numbers_are_refused_and_leave_the_run_as_it_was(model: LanguageModel) -> None:
    run = new_run(model, random_ids(5))
    advance(model, [run], 2)
    before = Snapshot(run)
    broken = replace(model, transformer=_without_numbers(model))
    run.model = broken
    with pytest.raises(Refusal) as caught:
        decode_one_token(broken, [run])
    assert caught.value.key == "text.no_usable_numbers"
    run.model = model
    before.assert_unchanged()
    advance(model, [run], 1)


def _without_numbers(model: LanguageModel) -> Any:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(model.transformer, name)

        def logits(self, hidden: Tensor) -> Tensor:
            return torch.full((*hidden.shape[:-1], model.config.vocab_size), float("nan"))

    return Broken()
