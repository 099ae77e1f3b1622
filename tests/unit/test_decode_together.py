"""Runs that share one decode pass get what each gets alone, whatever their lengths, order, settings and failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from core.engine import finish as finish_module
from core.engine.recorder import RecordConfig
from core.engine.run import Run
from core.engine.steps import decode_one_token, prefill
from core.model.load import LanguageModel, load_model
from core.refusal import Refusal
from tests.checkpoints import random_model, save_huggingface
from tests.peer import largest_difference, random_ids
from tests.runs import SAMPLED, assert_same_contents, contents, facts, new_run, next_logits

EVERYTHING = RecordConfig(candidates=5, kv_norms=True, queries=True, attention=(1, 2))
# MHA with biases, GQA with norms of queries and keys, MQA.
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("qwen2", {"num_key_value_heads": 4}),
    ("qwen3", {"num_key_value_heads": 2}),
    ("llama", {"num_key_value_heads": 1}),
]
LENGTHS = [1, 63, 700, 64, 65, 2, 300]
N_STEPS = 4


@pytest.fixture(scope="module", params=KINDS, ids=str)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    architecture, changes = request.param
    model = random_model(architecture, max_position_embeddings=1024, **changes)
    return str(save_huggingface(model, tmp_path_factory.mktemp("together") / "m"))


@pytest.fixture(scope="module")
def model(folder: str) -> LanguageModel:
    return load_model(folder, device="cpu", dtype="f32")


def runs_of(model: LanguageModel, lengths: list[int], **settings: Any) -> list[Run]:
    """Prefilled runs with prompts of these lengths."""
    runs = [new_run(model, random_ids(n, seed=n), **settings) for n in lengths]
    prefill(model, runs)
    return runs


# The last figure: logits of size 4, keys and values rounded to bf16 on either side of a border now and then.
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("f16", 2e-2), ("bf16", 2e-1)])
def test_together_equals_alone(folder: str, dtype: str, tolerance: float) -> None:
    model = load_model(folder, device="cpu", dtype=dtype)
    together, alone = (runs_of(model, LENGTHS, record=EVERYTHING) for _ in range(2))
    for _ in range(N_STEPS):
        decode_one_token(model, together)
        for run in alone:
            decode_one_token(model, [run])
    for one, other in zip(together, alone, strict=True):
        assert largest_difference(next_logits(one), next_logits(other)) <= tolerance
        if dtype == "f32":
            assert_same_contents(contents(one), contents(other), 1e-5)
        if dtype != "bf16":
            assert [facts(event) for event in one.steps] == [facts(event) for event in other.steps]


def test_the_order_of_the_runs_does_not_matter(model: LanguageModel) -> None:
    forward, backward = (runs_of(model, LENGTHS, sampling=SAMPLED) for _ in range(2))
    for _ in range(N_STEPS):
        decode_one_token(model, forward)
        decode_one_token(model, backward[::-1])
    assert [run.output_ids for run in forward] == [run.output_ids for run in backward]


def test_each_records_what_it_asked_for(model: LanguageModel) -> None:
    wanted = [RecordConfig(), EVERYTHING, RecordConfig(kv_norms=True), RecordConfig(queries=True)]
    together, alone = (
        [runs_of(model, [n], record=record)[0] for n, record in zip((63, 64, 5, 130), wanted, strict=True)]
        for _ in range(2)
    )
    events = decode_one_token(model, together)
    for event, run, other in zip(events, together, alone, strict=True):
        (expected,) = decode_one_token(model, [other])
        for name in ("key_norms", "value_norms"):
            found, lone = getattr(event.recorded, name), getattr(expected.recorded, name)
            assert (found is None) == (lone is None) == (not run.config.record.kv_norms)
            if found is not None:
                np.testing.assert_allclose(found, lone, rtol=0, atol=1e-5)
                assert not found.flags.writeable
        assert len(run.queries) == len(other.queries) == (len(run.steps) if run.config.record.queries else 0)
        for ours, theirs in zip(run.queries, other.queries, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_norms_are_those_of_what_the_cache_holds(folder: str) -> None:
    """Rounded as the cache rounds them, together as alone."""
    model = load_model(folder, device="cpu", dtype="f16")
    for runs in (runs_of(model, [5, 70, 71], record=EVERYTHING), runs_of(model, [1], record=EVERYTHING)):
        for run, event in zip(runs, decode_one_token(model, runs), strict=True):
            assert run.cache is not None and event.recorded.key_norms is not None
            newest = run.cache.columns(run.cache.n_tokens - 1, run.cache.n_tokens).float().norm(dim=-1)
            assert event.recorded.value_norms is not None
            np.testing.assert_allclose(event.recorded.key_norms, newest[:, 0], rtol=1e-6)
            np.testing.assert_allclose(event.recorded.value_norms, newest[:, 1], rtol=1e-6)


def test_a_record_keeps_no_neighbours_numbers_alive(model: LanguageModel) -> None:
    runs = runs_of(model, [4, 5, 6, 7], record=EVERYTHING)
    for run, event in zip(runs, decode_one_token(model, runs), strict=True):
        queries, norms = run.queries[-1], event.recorded.key_norms
        assert queries.untyped_storage().nbytes() == queries.nbytes
        assert norms is not None and (norms.base is None or norms.base.nbytes == norms.nbytes)


def test_one_whose_numbers_cannot_be_used_leaves_the_others_whole(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes before it keeps the step, it and whoever comes after are as they were: all can go on."""
    runs, twins = (runs_of(model, [4, 70, 5], record=EVERYTHING) for _ in range(2))
    choose = finish_module.filter_probabilities
    n_calls = 0

    def second_fails(*arguments: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise Refusal("text.no_usable_numbers")
        return choose(*arguments)

    monkeypatch.setattr(finish_module, "filter_probabilities", second_fails)
    with pytest.raises(Refusal):
        decode_one_token(model, runs)
    monkeypatch.undo()
    for run in runs:
        assert run.is_resident and len(run.steps) == len(run.output_ids) == len(run.queries)
    assert [len(run.steps) for run in runs] == [2, 1, 1]
    decode_one_token(model, runs[1:])
    decode_one_token(model, twins)
    assert [run.output_ids for run in runs] == [run.output_ids for run in twins]


def test_real_model_together_and_alone(smollm2_f32: LanguageModel) -> None:
    together, alone = (runs_of(smollm2_f32, [3, 64, 20, 90]) for _ in range(2))
    for _ in range(N_STEPS):
        decode_one_token(smollm2_f32, together)
        for run in alone:
            decode_one_token(smollm2_f32, [run])
    for one, other in zip(together, alone, strict=True):
        assert one.output_ids == other.output_ids
        assert largest_difference(next_logits(one), next_logits(other)) <= 1e-4
