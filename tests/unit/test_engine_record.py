"""What the record shows is what the model computed: attention, norms and queries against transformers and against
plain arithmetic, and nothing that was not asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from core.engine import recorder as recorder_module
from core.engine.recorder import RecordConfig, Recorder
from core.engine.run import Run, RunConfig
from core.engine.steps import decode_one_token, generate, prefill, recompute_one_token, step
from core.engine.trace import Phase, Recorded, StepEvent
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.peer import our_logits, peer_attention, random_ids, random_pair
from tests.runs import advance, new_run

EVERYTHING = RecordConfig(candidates=7, kv_norms=True, queries=True, attention=(1, 3))
N_PROMPT, N_NEW = 9, 5


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, LanguageModel]:
    folder: Path = tmp_path_factory.mktemp("record") / request.param
    return random_pair(request.param, folder, num_hidden_layers=3)


@pytest.fixture(scope="module")
def model(pair: tuple[PreTrainedModel, LanguageModel]) -> LanguageModel:
    return pair[1]


def recorded_run(model: LanguageModel, record: RecordConfig = EVERYTHING, **settings: Any) -> Run:
    run = Run(model, random_ids(N_PROMPT), RunConfig(max_new=N_NEW, record=record, **settings))
    assert len(list(generate(model, run))) == N_NEW
    return run


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("settings", [{}, {"prefill_chunk": 4}, {"use_cache": False}], ids=str)
def test_attention_equals_transformers(pair: tuple[PreTrainedModel, LanguageModel], settings: dict[str, Any]) -> None:
    """Of every step's newest position, in one layer and head and in the mean over heads."""
    peer, model = pair
    run = recorded_run(model, **settings)
    theirs = peer_attention(peer, run.ids)  # (L, h, n, n)
    for event in run.steps:
        row = event.recorded.attention
        assert row is not None and (row.layer, row.head) == (1, 3)
        n = event.n_tokens
        assert row.weights.shape == row.mean_over_heads.shape == (n,) and row.weights.dtype == np.float32
        close(row.weights, theirs[1, 3, n - 1, :n])
        close(row.mean_over_heads, theirs[1, :, n - 1, :n].mean(0))
        assert row.weights.sum() == pytest.approx(1, abs=1e-6)
        assert row.mean_over_heads.sum() == pytest.approx(1, abs=1e-6)


def test_attention_of_any_layer_and_head_of_a_past_step(pair: tuple[PreTrainedModel, LanguageModel]) -> None:
    """From cached keys and kept queries: equal to transformers', and to the row that was recorded then."""
    peer, model = pair
    run = recorded_run(model)
    theirs = peer_attention(peer, run.ids)
    for index, event in enumerate(run.steps):
        n = event.n_tokens
        for layer in range(model.config.n_layers):
            for head in range(model.config.n_heads):
                row = run.attention(index, layer, head)
                close(row.weights, theirs[layer, head, n - 1, :n])
        then = event.recorded.attention
        again = run.attention(index, 1, 3)
        assert then is not None
        close(again.weights, then.weights, 1e-7)
        close(again.mean_over_heads, then.mean_over_heads, 1e-7)


def test_past_attention_survives_a_step_back(model: LanguageModel) -> None:
    run = recorded_run(model)
    before = run.attention(2, 0, 1).weights
    run.step_back()
    run.step_back()
    close(run.attention(2, 0, 1).weights, before, 0)
    with pytest.raises(IndexError):
        run.attention(3, 0, 1)


def keys_values_by_hand(pair: tuple[PreTrainedModel, LanguageModel], ids: list[int]) -> tuple[Tensor, Tensor]:
    """Keys and values [L, n_kv, n, d_h] as transformers caches them."""
    with torch.inference_mode():
        cached = pair[0](torch.tensor([ids]), use_cache=True).past_key_values
    return torch.stack([x.keys[0] for x in cached.layers]), torch.stack([x.values[0] for x in cached.layers])


@pytest.mark.parametrize("settings", [{}, {"prefill_chunk": 4}], ids=str)
def test_norms_of_the_new_positions(pair: tuple[PreTrainedModel, LanguageModel], settings: dict[str, Any]) -> None:
    run = recorded_run(pair[1], **settings)
    keys, values = keys_values_by_hand(pair, run.ids)
    for event in run.steps:
        new = slice(event.n_tokens - event.new_positions, event.n_tokens)
        for found, expected in ((event.recorded.key_norms, keys), (event.recorded.value_norms, values)):
            assert found is not None
            assert found.shape == (3, pair[1].config.n_kv_heads, event.new_positions) and found.dtype == np.float32
            close(found, expected[:, :, new].norm(dim=-1), 1e-5)


def test_norms_without_a_cache_are_those_of_all_positions(pair: tuple[PreTrainedModel, LanguageModel]) -> None:
    run = Run(pair[1], random_ids(4), RunConfig(max_new=2, use_cache=False, record=EVERYTHING))
    events = [recompute_one_token(pair[1], [run])[0] for _ in range(2)]
    keys, _ = keys_values_by_hand(pair, run.ids)
    assert [event.recorded.key_norms.shape[2] for event in events if event.recorded.key_norms is not None] == [4, 5]
    close(events[1].recorded.key_norms, keys[:, :, :5].norm(dim=-1), 1e-5)
    with pytest.raises(ValueError):
        run.attention(0, 0, 0)


def test_queries_are_those_of_each_steps_newest_position(model: LanguageModel) -> None:
    """In the cache's dtype; with the cached keys their softmax is the attention."""
    run = recorded_run(model, prefill_chunk=4)
    config = model.config
    assert run.cache is not None and len(run.queries) == len(run.steps)
    for event, queries in zip(run.steps, run.queries, strict=True):
        assert queries.dtype == run.cache.dtype and queries.shape == (3, config.n_heads, config.head_dim)
        row = event.recorded.attention
        assert row is not None
        shared = config.n_heads // config.n_kv_heads
        keys = run.cache.keys(1)[3 // shared, : event.n_tokens]
        scores = keys @ queries[1, 3] / config.head_dim**0.5
        close(row.weights, scores.softmax(0))


def test_queries_live_and_go_with_their_steps(model: LanguageModel) -> None:
    run = recorded_run(model)
    first = run.queries[0]
    assert first.untyped_storage().nbytes() < 4 * model.config.n_layers * model.config.attention_width * first.itemsize
    run.step_back()
    assert len(run.queries) == len(run.steps)
    assert Run(model, random_ids(4), RunConfig()).queries == []


def test_candidates_are_the_likeliest_tokens(model: LanguageModel) -> None:
    run = recorded_run(model)
    usable = model.tokenizer.vocab_size
    for event in run.steps:
        assert event.sampled is not None
        probabilities = our_logits(model, run.ids[: event.n_tokens])[-1, :usable].double().softmax(0)
        best = probabilities.topk(7)
        assert [c.token_id for c in event.sampled.candidates] == best.indices.tolist()
        close([c.probability for c in event.sampled.candidates], best.values)
        assert event.sampled.token_id == event.sampled.candidates[0].token_id  # greedy
        assert [c.kept for c in event.sampled.candidates] == [True] + [False] * 6
        assert event.sampled.kept_count == 1 and event.sampled.kept_mass == 1


def test_what_is_recorded_cannot_be_changed(model: LanguageModel) -> None:
    event = recorded_run(model).steps[-1]
    recorded = event.recorded
    assert recorded.attention is not None
    arrays = [recorded.key_norms, recorded.value_norms, recorded.attention.weights, recorded.attention.mean_over_heads]
    for array in arrays:
        assert array is not None and not array.flags.writeable
        with pytest.raises(ValueError):
            array[...] = 0
    for record, name in ((event, "n_tokens"), (recorded, "key_norms"), (recorded.attention, "weights")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)


def test_what_is_recorded_does_not_change_later(model: LanguageModel) -> None:
    """Records are copies: later steps, which write the same cache, leave them alone."""
    run = Run(model, random_ids(5), RunConfig(max_new=99, record=EVERYTHING))
    event = step(model, [run])[0]
    recorded = event.recorded
    assert recorded.key_norms is not None and recorded.attention is not None
    queries = run.queries[0]
    copies = queries.clone(), recorded.key_norms.copy(), recorded.attention.weights.copy()
    for _ in range(4):
        step(model, [run])
    while run.steps:
        run.step_back()
    step(model, [Run(model, random_ids(5, seed=3), RunConfig(record=EVERYTHING))])
    assert torch.equal(queries, copies[0])
    close(recorded.key_norms, copies[1], 0)
    close(recorded.attention.weights, copies[2], 0)


FIELDS = ("key_norms", "value_norms", "attention")


@pytest.mark.parametrize(
    ("record", "present"),
    [
        (RecordConfig(), []),
        (RecordConfig(kv_norms=True), ["key_norms", "value_norms"]),
        (RecordConfig(queries=True), []),
        (RecordConfig(attention=(0, 0)), ["attention"]),
        (RecordConfig(candidates=3), []),
    ],
    ids=str,
)
def test_what_is_not_asked_for_is_not_there(model: LanguageModel, record: RecordConfig, present: list[str]) -> None:
    for event in recorded_run(model, record).steps:
        assert [name for name in FIELDS if getattr(event.recorded, name) is not None] == present
        assert event.sampled is not None and len(event.sampled.candidates) == record.candidates


def test_what_is_not_asked_for_is_not_computed(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed though nobody asked")

    for name in ("attention_weights", "attention_row", "read_only"):
        monkeypatch.setattr(recorder_module, name, never)
    recorded = recorder_module.Recorder.recorded

    def with_nothing_kept(self: Recorder, *arguments: Any) -> Recorded:
        assert not self._queries
        return recorded(self, *arguments)

    monkeypatch.setattr(recorder_module.Recorder, "recorded", with_nothing_kept)
    monkeypatch.setattr("core.model.kv_cache.KVCache.columns", never)
    monkeypatch.setattr("core.engine.finish.filter_probabilities", never)
    assert len(recorded_run(model, RecordConfig()).output_ids) == N_NEW


def test_runs_of_one_batch_record_what_each_asked_for(model: LanguageModel) -> None:
    wanted = [RecordConfig(), EVERYTHING, RecordConfig(attention=(0, 2)), RecordConfig(queries=True)]
    runs = [
        Run(model, random_ids(4 + i, seed=i), RunConfig(max_new=9, record=record)) for i, record in enumerate(wanted)
    ]
    prefill(model, runs)
    together = decode_one_token(model, runs)
    for i, (record, event) in enumerate(zip(wanted, together, strict=True)):
        alone = Run(model, random_ids(4 + i, seed=i), RunConfig(max_new=9, record=record))
        prefill(model, [alone])
        (expected,) = decode_one_token(model, [alone])
        assert_same_recorded(event, expected)


def assert_same_recorded(event: StepEvent, expected: StepEvent) -> None:
    for name in FIELDS:
        found, wanted = getattr(event.recorded, name), getattr(expected.recorded, name)
        assert (found is None) == (wanted is None)
        if name == "attention" and wanted is not None:
            assert (found.layer, found.head) == (wanted.layer, wanted.head)
            close(found.weights, wanted.weights, 1e-6)
            close(found.mean_over_heads, wanted.mean_over_heads, 1e-6)
        elif wanted is not None:
            close(found, wanted, 1e-5)


@pytest.mark.parametrize("place", [(3, 0), (-1, 0), (0, 4), (0, -1), (99, 99)])
def test_a_layer_or_head_that_is_not_there_is_refused(model: LanguageModel, place: tuple[int, int]) -> None:
    with pytest.raises(Refusal) as caught:
        Run(model, random_ids(3), RunConfig(record=RecordConfig(attention=place)))
    assert caught.value.key == "engine.recorded_layer_unknown"
    run = recorded_run(model)
    with pytest.raises(Refusal):
        run.attention(0, *place)


def test_each_step_says_what_it_did(model: LanguageModel) -> None:
    run = recorded_run(model)
    product_bytes = sum(
        parameter.numel() * 4
        for name, parameter in _matrices(model)
        if name.endswith("proj.weight") or name == "lm_head.weight"
    )
    for index, event in enumerate(run.steps):
        assert event.phase is (Phase.DECODE if index else Phase.PREFILL)
        assert event.n_tokens == event.new_positions + event.reused_positions
        assert event.weight_bytes_read == product_bytes and event.n_passes == 1
        assert event.kv_bytes_read == (event.kv_bytes if index else 0)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prefix_in_chunks_reads_weights_and_earlier_chunks_again(model: LanguageModel, use_cache: bool) -> None:
    whole, chunked = (new_run(model, random_ids(11), prefill_chunk=n, use_cache=use_cache) for n in (None, 4))
    advance(model, [whole, chunked], 1)
    event, at_once = chunked.steps[0], whole.steps[0]
    head = model.transformer.head.n_bytes
    assert event.n_passes == 3 and at_once.n_passes == 1
    assert event.weight_bytes_read == 3 * (at_once.weight_bytes_read - head) + head
    shape = model.config  # chunks of 4, 4 and 3: the second reads 4 earlier positions, the third 8
    position = 2 * shape.n_layers * shape.n_kv_heads * shape.head_dim * 4
    assert event.kv_bytes_read == (4 + 8) * position and at_once.kv_bytes_read == 0


def _matrices(model: LanguageModel) -> list[tuple[str, Tensor]]:
    from core.model.parameters import parameter_shapes

    return [(name, torch.empty(shape, device="meta")) for name, shape in parameter_shapes(model.config).items()]
