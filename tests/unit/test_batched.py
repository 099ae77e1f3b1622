"""Batching measured: bytes and FLOP by the formulas, each sequence as if it were alone."""

from __future__ import annotations

from typing import Any

import pytest

from core.engine.trace import StepEvent
from core.lab import batched
from core.lab.batched import BatchedDecoding, BatchResult
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.peer import our_logits

BATCHES, N_STEPS = (1, 2, 5), 6


@pytest.fixture(scope="module")
def prompt(tiny_f32: LanguageModel) -> list[int]:
    return tiny_f32.prompt_ids("The moon over the river is")


@pytest.fixture(scope="module")
def result(tiny_f32: LanguageModel, prompt: list[int]) -> BatchResult:
    experiment = BatchedDecoding(tiny_f32, prompt, BATCHES, N_STEPS)
    for point in experiment.points():
        point()
        point()  # as after a disturbance
    return experiment.result


def test_bytes_and_flops_are_the_formulas(tiny_f32: LanguageModel, result: BatchResult) -> None:
    n = result.n_prompt + N_STEPS
    weights, cached = tiny_f32.transformer.product_bytes, 2 * 4 * 2 * 32 * 4 * n  # K and V, L·n_kv·d_h numbers of 4 B
    for point in result.points:
        assert (point.n_tokens, point.weight_bytes_read, point.kv_bytes_read) == (n, weights, point.batch * cached)
        assert point.bytes_read_formula == weights + point.batch * cached
        assert point.kv_bytes == point.kv_bytes_formula == point.batch * cached
        assert point.flops == point.flops_formula == point.batch * result.points[0].flops
        by_bytes = (weights + cached) / (weights / point.batch + cached)
        assert result.by_bytes(point) == pytest.approx(by_bytes)
        seconds = result.points[0].seconds / (point.seconds / point.batch)
        assert point.seconds > 0 and result.speedup(point) == pytest.approx(seconds)


def test_every_sequence_is_what_it_is_alone(tiny_f32: LanguageModel, prompt: list[int], result: BatchResult) -> None:
    """Each begins with another of the likeliest tokens, and goes on as by passes over the whole text."""
    assert [point.batch for point in result.points] == list(BATCHES) and len(set(result.first_ids)) == BATCHES[-1]
    for first, ids in zip(result.first_ids, result.points[0].token_ids, strict=True):
        text = [*prompt, first]
        for token_id in ids:
            assert token_id == int(our_logits(tiny_f32, text)[-1].argmax())
            text.append(token_id)
    for point in result.points:
        assert len(point.token_ids) == (point.batch if point.batch > 1 else BATCHES[-1])
        assert result.has_same_tokens(point) and point.kv_difference < 1e-5


def test_a_batch_is_one_pass(tiny_f32: LanguageModel, prompt: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    step = batched.decode_step

    def heard(model: LanguageModel, rows: list[list[int]], *more: Any) -> list[StepEvent]:
        sizes.append(len(rows))
        return step(model, rows, *more)

    monkeypatch.setattr(batched, "decode_step", heard)
    for point in BatchedDecoding(tiny_f32, prompt, BATCHES, n_steps=1).points():
        point()
    assert sizes == [1] * BATCHES[-1] + list(BATCHES[1:])


def test_a_prompt_without_room_is_refused(tiny_f32: LanguageModel, prompt: list[int]) -> None:
    with pytest.raises(Refusal) as refused:
        BatchedDecoding(tiny_f32, prompt * 30)
    assert refused.value.key == "techniques.prompt_too_long"
