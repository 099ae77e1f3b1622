"""One training step: the losses of all positions from one pass, the gradient right, the shared model untouched."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from core.engine.engine import Engine
from core.lab import training_step as training_module
from core.lab.training_step import MOST_POSITIONS, TrainingResult, TrainingStep
from core.model.load import LanguageModel, load_model
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import our_logits

TEXT = "The sea is blue on a clear day and grey on a cloudy one."


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def trained(model: LanguageModel, ids: list[int], tries: int = 1) -> TrainingResult:
    step = TrainingStep(model, ids)
    for point in step.points():
        for _ in range(tries):
            point()
    return step.result


@pytest.mark.parametrize("tries", [1, 2])
def test_all_positions_at_once(tiny_f32: LanguageModel, tries: int) -> None:
    ids = tiny_f32.prompt_ids(TEXT)
    result = trained(tiny_f32, ids, tries)
    made, apart = result.all_at_once, result.one_by_one
    assert made is not None and apart is not None and result.loss_difference is not None
    chances = our_logits(tiny_f32, ids[:-1]).log_softmax(-1)
    expected = [-float(chances[place, token_id]) for place, token_id in enumerate(ids[1:])]
    assert made.losses == pytest.approx(expected, abs=1e-4)
    assert len(made.losses) == len(apart.losses) == result.n_positions == len(ids) - 1
    assert result.loss_difference < 1e-4
    assert apart.kv_bytes == 2 * 4 * 2 * 32 * 4 * (len(ids) - 1)
    assert sum(made.losses_after) < sum(made.losses)
    assert made.cache_change > 1e-3 and made.cache_magnitude > made.cache_change
    assert made.kept_bytes > len(ids) * 4 * 128 * 4  # at least one row of d numbers a layer
    assert min(made.forward_seconds, made.backward_seconds, made.update_seconds, apart.seconds) > 0


def test_the_loss_falls_by_the_gradients_square(tiny_f32: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a small step: rate · |gradient|². A wrong gradient would not do that."""
    monkeypatch.setattr(training_module, "LEARNING_RATE", 1e-5)
    result = trained(tiny_f32, tiny_f32.prompt_ids("Why is the sky blue? Because light is scattered."))
    made = result.all_at_once
    assert made is not None
    fell = (math.fsum(made.losses) - math.fsum(made.losses_after)) / result.n_positions
    assert fell == pytest.approx(1e-5 * made.gradient_norm**2, rel=0.1)


def test_the_shared_model_is_not_touched(tiny_f32: LanguageModel, engine: Engine) -> None:
    ids = tiny_f32.prompt_ids(TEXT)
    before = our_logits(tiny_f32, ids)
    step = TrainingStep(tiny_f32, ids)
    engine.measure(step.measurement()).future.result(PATIENCE)
    assert step.result.all_at_once is not None
    assert torch.equal(our_logits(tiny_f32, ids), before)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_the_copy_is_fp32_whatever_the_model_is_in() -> None:
    half = load_model("tiny", device="cpu", dtype="f16")
    result = trained(half, half.prompt_ids("The sea"))
    assert result.loss_difference is not None and result.loss_difference < 1e-4


def test_long_texts_are_cut_and_others_refused(tiny_f32: LanguageModel, smollm2_f32: LanguageModel) -> None:
    assert TrainingStep(tiny_f32, [5] * 900).result.n_positions == MOST_POSITIONS
    assert TrainingStep(tiny_f32, [5] * 900).result.n_given == 900
    for model, ids in ((tiny_f32, []), (tiny_f32, [5]), (smollm2_f32, [5, 6])):
        with pytest.raises(Refusal):
            TrainingStep(model, ids)
