"""What a step does to its run and to nobody else: whole or in chunks, alone or in a batch, with a cache or without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.engine.run import RunConfig
from core.engine.steps import decode_one_token, prefill, recompute_one_token, step
from core.engine.trace import Phase
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.peer import largest_difference, our_logits, random_ids, random_pair
from tests.runs import SAMPLED, advance, assert_same_contents, contents, facts, new_run, next_logits


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("steps") / "m", num_hidden_layers=3)[1]


# --- prefill in chunks


@pytest.mark.parametrize(
    ("n_prompt", "chunk"),
    [(16, 1), (16, 7), (16, 9), (16, 16), (16, 99), (17, 10), (17, 1), (17, 16), (130, 64), (130, 1), (130, 129)],
)
def test_chunks_equal_the_whole(model: LanguageModel, n_prompt: int, chunk: int) -> None:
    """B04: 7 + 9, one by one, and the rest give the same logits, the same cache, and the same count of pairs."""
    ids = random_ids(n_prompt)
    whole, chunked = new_run(model, ids), new_run(model, ids, prefill_chunk=chunk)
    (as_whole,), (in_chunks,) = prefill(model, [whole]), prefill(model, [chunked])
    assert whole.cache is not None and chunked.cache is not None
    assert whole.cache.n_tokens == chunked.cache.n_tokens == n_prompt
    assert_same_contents(contents(whole), contents(chunked), 1e-5)
    assert largest_difference(next_logits(whole), next_logits(chunked)) <= 1e-5
    assert as_whole.attended_pairs == in_chunks.attended_pairs == n_prompt * (n_prompt + 1) // 2
    assert in_chunks.new_positions == n_prompt and in_chunks.reused_positions == 0
    advance(model, [whole, chunked], 5)
    assert whole.output_ids == chunked.output_ids


def test_16_positions_are_136_pairs(model: LanguageModel) -> None:
    events = [prefill(model, [new_run(model, random_ids(16), prefill_chunk=chunk)])[0] for chunk in (None, 7, 9, 1)]
    assert [event.attended_pairs for event in events] == [136] * 4


def test_logits_of_every_chunk_are_those_of_the_whole(model: LanguageModel) -> None:
    """Not only the last row: the second chunk's first query must see the whole first chunk."""
    ids = random_ids(17)
    whole = our_logits(model, ids)
    for sizes in ((10, 7), (7, 10), (1,) * 17, (16, 1)):
        cache = model.transformer.new_cache()
        with torch.inference_mode():
            parts = [model.transformer.hidden(part[None], [cache]) for part in torch.tensor(ids).split(list(sizes))]
            logits = model.transformer.logits(torch.cat(parts, 1))[0]
        assert largest_difference(logits, whole) <= 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {"prefill_chunk": 0},
        {"prefill_chunk": -1},
        {"max_new": -1},
        {"max_new": True},
        {"max_new": 1.5},
        {"prefill_chunk": 2.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        RunConfig(**settings)


# --- many runs in one call


def test_a_ragged_batch_equals_each_row_alone(model: LanguageModel) -> None:
    """B05: prompts of 4 and 7 tokens (and 1 and 70), decoded together."""
    prompts = [random_ids(n, seed=n) for n in (4, 7, 1, 70)]
    together, alone = [new_run(model, ids) for ids in prompts], [new_run(model, ids) for ids in prompts]
    prefill(model, together)
    for _ in range(5):
        decode_one_token(model, together)
    for run in alone:
        prefill(model, [run])
        for _ in range(5):
            decode_one_token(model, [run])
    for one, other in zip(together, alone, strict=True):
        assert one.output_ids == other.output_ids
        assert largest_difference(next_logits(one), next_logits(other)) <= 1e-5
        assert_same_contents(contents(one), contents(other), 1e-5)
        assert [facts(event) for event in one.steps] == [facts(event) for event in other.steps]


def test_one_pass_of_ragged_caches_gives_each_row_its_own_logits(model: LanguageModel) -> None:
    """B05 on the numbers themselves: a mask or a position shared over the rows moves them."""
    prompts = [random_ids(n, seed=n) for n in (4, 7)]
    caches = [model.transformer.new_cache() for _ in prompts]
    with torch.inference_mode():
        for ids, cache in zip(prompts, caches, strict=True):
            model.transformer.hidden(torch.tensor([ids]), [cache])
        logits = model.transformer.logits(model.transformer.hidden(torch.tensor([[5], [6]]), caches))[:, 0]
    for row, (ids, newest) in enumerate(zip(prompts, (5, 6), strict=True)):
        assert largest_difference(logits[row], our_logits(model, [*ids, newest])[-1]) <= 1e-5


def test_whole_sequences_in_a_batch_equal_each_alone(model: LanguageModel) -> None:
    rows = [random_ids(9, seed=1), random_ids(9, seed=2)]
    with torch.inference_mode():
        logits = model.transformer.logits(model.transformer.hidden(torch.tensor(rows)))
    for row, ids in enumerate(rows):
        assert largest_difference(logits[row], our_logits(model, ids)) <= 1e-5


def test_runs_in_any_phase_go_forward_together_in_their_order(model: LanguageModel) -> None:
    runs = [
        new_run(model, random_ids(5, seed=1)),
        new_run(model, random_ids(6, seed=2), use_cache=False),
        new_run(model, random_ids(7, seed=3), sampling=SAMPLED),
        new_run(model, random_ids(8, seed=4)),
    ]
    step(model, [runs[0], runs[2]])
    events = step(model, runs)
    assert [event.phase for event in events] == [Phase.DECODE, Phase.RECOMPUTE, Phase.DECODE, Phase.PREFILL]
    assert [event.n_tokens for event in events] == [6, 6, 8, 8]
    assert all(run.steps[-1] is event for run, event in zip(runs, events, strict=True))
    assert step(model, []) == decode_one_token(model, []) == prefill(model, []) == []


def test_two_runs_on_one_model_never_meet(model: LanguageModel) -> None:
    """B16: A then B, B alone, and A and B in turns."""
    a, b = random_ids(6, seed=1), random_ids(9, seed=2)
    fresh = {}
    for name, ids in (("a", a), ("b", b)):
        run = new_run(model, ids, sampling=SAMPLED)
        advance(model, [run], 6)
        fresh[name] = (run.output_ids, contents(run))
    first, second = new_run(model, a, sampling=SAMPLED), new_run(model, b, sampling=SAMPLED)
    assert second.cache is not None
    advance(model, [first], 6)
    assert second.cache.n_tokens == 0 and second.cache.used_bytes == 0  # starts at 0 cells
    advance(model, [second], 6)
    third, fourth = new_run(model, a, sampling=SAMPLED), new_run(model, b, sampling=SAMPLED)
    for _ in range(6):
        advance(model, [third], 1)
        advance(model, [fourth], 1)
    for name, run in (("a", first), ("b", second), ("a", third), ("b", fourth)):
        assert run.output_ids == fresh[name][0]
        assert_same_contents(contents(run), fresh[name][1])


def test_a_step_that_does_not_fit_its_run_is_an_error(model: LanguageModel) -> None:
    prefilled, without = new_run(model, random_ids(4)), new_run(model, random_ids(4), use_cache=False)
    with pytest.raises(ValueError):
        decode_one_token(model, [prefilled])
    with pytest.raises(ValueError):
        prefill(model, [without])
    prefill(model, [prefilled])
    with pytest.raises(ValueError):
        prefill(model, [prefilled])
    with pytest.raises(ValueError):
        decode_one_token(model, [without])
    assert len(prefilled.steps) == 1 and not without.steps


def test_the_recomputing_loop_keeps_nothing(model: LanguageModel) -> None:
    run = new_run(model, random_ids(5), use_cache=False)
    events = [recompute_one_token(model, [run])[0] for _ in range(3)]
    assert run.cache is None
    assert [(event.new_positions, event.reused_positions) for event in events] == [(5, 0), (6, 0), (7, 0)]
    assert [event.attended_pairs for event in events] == [15, 21, 28]
    assert all(event.kv_bytes == event.kv_bytes_formula == event.kv_reserved_bytes == 0 for event in events)


@pytest.mark.parametrize("n_before", [0, 1])
def test_one_run_twice_in_a_list_is_an_error(model: LanguageModel, n_before: int) -> None:
    """Two clicks gathered into one batch: both rows would write the same slot, and one slot would stay unwritten."""
    run = new_run(model, random_ids(5))
    advance(model, [run], n_before)
    with pytest.raises(ValueError):
        step(model, [run, run])
    assert len(run.steps) == n_before and run.cache is not None
    assert run.cache.n_tokens == (5 + n_before - 1 if n_before else 0)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_run_that_has_ended_takes_no_further_step(model: LanguageModel, use_cache: bool) -> None:
    """A late second click: no position more in the cache, no error the next visitor would meet."""
    run = new_run(model, random_ids(5), max_new=2, use_cache=use_cache)
    advance(model, [run], 2)
    before = [facts(event) for event in run.steps]
    for advance_by_one in (step, decode_one_token, recompute_one_token):
        with pytest.raises(ValueError, match="ended"):
            advance_by_one(model, [run])
    assert [facts(event) for event in run.steps] == before
    assert run.cache is None or run.cache.n_tokens == 6


def test_a_run_of_another_model_is_an_error(model: LanguageModel, tiny_f32: LanguageModel) -> None:
    for advance_by_one in (step, prefill, recompute_one_token):
        with pytest.raises(ValueError, match="another model"):
            advance_by_one(model, [new_run(tiny_f32, random_ids(5))])
