"""Chunked prefill measured: the engine's own counts, equal FLOP and cache, logits but for rounding."""

from __future__ import annotations

import pytest

from core.engine.prefix import PrefixPass
from core.lab.chunked import ChunkedPrefill, ChunkResult
from core.model.load import LanguageModel
from tests.peer import our_logits
from tests.runs import new_run

CHUNKS, N = (100, 16, 500), 203


@pytest.fixture(scope="module")
def prompt(tiny_f32: LanguageModel) -> list[int]:
    return tiny_f32.prompt_ids("A long way up the river")


@pytest.fixture(scope="module")
def result(tiny_f32: LanguageModel, prompt: list[int]) -> ChunkResult:
    experiment = ChunkedPrefill(tiny_f32, prompt, CHUNKS, N)
    for point in experiment.points():
        point()
        point()  # as after a disturbance
    return experiment.result


def test_every_count_is_the_engines(tiny_f32: LanguageModel, prompt: list[int], result: ChunkResult) -> None:
    ids = (prompt * N)[:N]
    assert [point.chunk for point in result.points] == [16, 100, N]
    for point in result.points:
        event = PrefixPass(new_run(tiny_f32, ids, prefill_chunk=point.chunk)).whole()
        assert event is not None
        assert (point.n_passes, point.flops_multiplied) == (event.n_passes, event.flops_exact)
        assert (point.weight_bytes_read, point.kv_bytes_read) == (event.weight_bytes_read, event.kv_bytes_read)
        assert point.bytes_read == point.bytes_read_formula
        assert point.kv_bytes == point.kv_bytes_formula == event.kv_bytes


def test_bytes_grow_with_the_passes_and_what_counts_does_not(tiny_f32: LanguageModel, result: ChunkResult) -> None:
    small, _, whole = result.points
    head = tiny_f32.transformer.head.n_bytes
    assert whole is result.whole and (small.n_passes, whole.n_passes) == (13, 1)
    assert small.weight_bytes_read - head == 13 * (whole.weight_bytes_read - head)
    assert small.kv_bytes_read == 2 * 4 * 2 * 32 * 4 * sum(range(0, N, 16)) and whole.kv_bytes_read == 0
    assert small.flops == whole.flops and small.flops_multiplied < whole.flops_multiplied
    assert small.longest_s == max(small.pass_seconds) and small.seconds == sum(small.pass_seconds)


def test_the_answer_is_the_same(tiny_f32: LanguageModel, prompt: list[int], result: ChunkResult) -> None:
    assert result.has_same_token and 0 < result.largest_difference < 1e-3
    assert result.whole.token_id == int(our_logits(tiny_f32, (prompt * N)[:N])[-1].argmax())
    assert all(point.kv_difference < 1e-3 for point in result.points)
    assert result.whole.logit_difference == result.whole.kv_difference == 0
