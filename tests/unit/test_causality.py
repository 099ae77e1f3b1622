"""Old keys and values do not change under the mask; without it they do, from the second layer on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from core.engine.engine import Engine
from core.lab.causality import N_GENERATED, Causality, CausalityProof, most_positions
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair

ROUNDING = 1e-4


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair(request.param, tmp_path_factory.mktemp("causality") / "m")[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def proved(model: LanguageModel, past: list[int], right: list[int], tries: int = 1) -> Causality:
    proof = CausalityProof(model, past, right)
    for point in proof.points():
        for _ in range(tries):
            point()
    return proof.result


def check(made: Causality, n_layers: int) -> None:
    assert made.masked is not None and made.unmasked is not None
    assert len(made.masked.layers) == len(made.unmasked.layers) == n_layers
    for change in (made.masked, made.unmasked):
        assert change.layers[0].keys == change.layers[0].values == 0.0
        assert change.magnitude > 0
    assert made.masked.largest < ROUNDING * max(1.0, made.masked.magnitude)
    for layer in made.unmasked.layers[1:]:
        assert layer.keys > 100 * made.masked.largest and layer.values > 100 * made.masked.largest
        assert layer.keys > 0 < layer.values


@pytest.mark.parametrize("tries", [1, 2])
def test_the_past_stays_under_the_mask_alone(model: LanguageModel, tries: int) -> None:
    made = proved(model, random_ids(17), random_ids(5, seed=1), tries)
    assert made.n_past == made.n_prompt == 17 and made.right_ids == tuple(random_ids(5, seed=1))
    check(made, model.config.n_layers)


def test_the_real_model(smollm2_f32: LanguageModel) -> None:
    past = smollm2_f32.prompt_ids("Why is the sky blue?")
    check(proved(smollm2_f32, past, smollm2_f32.tokenizer.encode(" Because light")), smollm2_f32.config.n_layers)


def test_the_tiny_model_writes_the_right_side_itself(tiny_f32: LanguageModel, engine: Engine) -> None:
    past = tiny_f32.prompt_ids("The sea")
    proof = CausalityProof(tiny_f32, past)
    engine.measure(proof.measurement()).future.result(PATIENCE)
    assert 1 <= len(proof.result.right_ids) <= N_GENERATED
    check(proof.result, tiny_f32.config.n_layers)
    assert not torch.is_inference_mode_enabled()


def test_the_unmasked_pass_is_the_same_model_seen_from_both_sides(model: LanguageModel) -> None:
    """One position has nobody to its right: with or without the mask its hidden state is the same."""
    from core.model.attention import AttentionWithin

    ids = torch.tensor([[7]])
    with torch.inference_mode():
        masked = model.transformer.hidden(ids)
        unmasked = model.transformer.hidden(ids, attend=AttentionWithin(1, causal=False).attend)
    torch.testing.assert_close(masked, unmasked, rtol=0, atol=1e-5)


def test_long_pasts_are_cut_and_too_much_is_refused(model: LanguageModel) -> None:
    most = min(most_positions(model.device), model.config.context_limit)
    proof = CausalityProof(model, random_ids(most), random_ids(3))
    assert proof.result.n_past == most - N_GENERATED and proof.result.n_prompt == most
    with pytest.raises(Refusal):
        CausalityProof(model, random_ids(4), random_ids(most))
    with pytest.raises(Refusal):
        CausalityProof(model, [], random_ids(3))
