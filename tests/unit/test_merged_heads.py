"""Merged KV heads: the mean by hand, bytes in proportion, and compute saved in two projections and nowhere else."""

from __future__ import annotations

import pytest
import torch

from core.estimate.flops import decode_flops
from core.lab.before_after import Asked
from core.lab.merged_heads import MergedHeads, MergedHeadsExperiment, fewer_heads, merged
from core.lab.quality import held_ids, held_text, text_for
from core.model.load import LanguageModel
from core.model.parameters import layer_prefix
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.peer import random_ids, random_pair


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, LanguageModel]:
    changes = {"num_attention_heads": 8, "num_key_value_heads": 4}
    return random_pair(request.param, tmp_path_factory.mktemp("merged") / "m", **changes)


def by_hand(peer: object, model: LanguageModel, n_kv: int) -> Transformer:
    """A transformer read from the same tensors, those of keys and values averaged before it sees them."""
    state = {name: tensor.detach().clone() for name, tensor in peer.state_dict().items()}  # type: ignore[attr-defined]
    config, d_h = model.config, model.config.head_dim
    per_head = config.n_kv_heads // n_kv
    for layer in range(config.n_layers):
        for part in ("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"):
            name = f"{layer_prefix(layer)}self_attn.{part}"
            if name in state:
                heads = state[name].split(d_h)
                groups = [heads[first : first + per_head] for first in range(0, config.n_kv_heads, per_head)]
                state[name] = torch.cat([sum(group) / per_head for group in groups])  # type: ignore[misc]
    return Transformer(merged(model, n_kv).config, lambda name: state[name])


@pytest.mark.parametrize("n_kv", [2, 1])
def test_the_mean_by_hand(pair: tuple[object, LanguageModel], n_kv: int) -> None:
    peer, model = pair
    ids = torch.tensor([random_ids(20)])
    with torch.inference_mode():
        before = model.transformer.logits(model.transformer.hidden(ids))
        expected = (own := by_hand(peer, model, n_kv)).logits(own.hidden(ids))
        made = merged(model, n_kv).transformer
        found = made.logits(made.hidden(ids, [made.new_cache()]))
        assert torch.equal(before, model.transformer.logits(model.transformer.hidden(ids)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert float((found - before).abs().max()) > 1e-3
    assert model.config.n_kv_heads == 4 and made.config.n_kv_heads == n_kv


def test_queries_stay_and_keys_are_means(pair: tuple[object, LanguageModel]) -> None:
    _, model = pair
    twice = merged(model, 2)
    rows = twice.transformer.layers[0].qkv.unpacked()[0]
    q = model.config.attention_width
    keys, values = rows[q:].chunk(2)
    assert keys.shape == values.shape == (2 * model.config.head_dim, model.config.d_model)
    original = model.transformer.layers[0].qkv.unpacked()[0]
    assert torch.equal(rows[:q], original[:q])
    mean = original[q : q + model.config.kv_width].view(4, -1, model.config.d_model)[:2].mean(0)
    torch.testing.assert_close(keys[: model.config.head_dim], mean, rtol=0, atol=1e-6)


def measured(model: LanguageModel, n_kv: int, asked: Asked, tries: int = 1) -> MergedHeads:
    experiment = MergedHeadsExperiment(model, n_kv, asked)
    for point in experiment.measurement().points:
        for _ in range(tries):
            point()
    return experiment.result


@pytest.mark.parametrize("tries", [1, 2])
def test_bytes_fall_in_proportion(pair: tuple[object, LanguageModel], tries: int) -> None:
    _, model = pair
    for n_kv in fewer_heads(model.config):
        result = measured(model, n_kv, Asked(random_ids(9), 4, random_ids(30)), tries)
        assert result.compared.kv_bytes == result.kv_bytes_formula and result.compared.n_tokens == 12
        assert result.kv_bytes_formula.ratio == n_kv / 4 == result.n_kv_heads.ratio
        config, fewer = model.config, 4 - n_kv
        numbers = config.n_layers * config.d_model * 2 * fewer * config.head_dim
        assert result.decode_flops.before - result.decode_flops.after == 2 * numbers
        assert result.decode_flops.before == decode_flops(model.shape, 12)
        assert result.weight_bytes is not None
        assert result.weight_bytes.before - result.weight_bytes.after == numbers * model.element_bytes


def test_the_tiny_model_forgets(tiny_f32: LanguageModel) -> None:
    assert fewer_heads(tiny_f32.config) == [1]
    held = held_ids(tiny_f32, text_for(tiny_f32, "zh"), 96)
    result = measured(tiny_f32, 1, Asked(tiny_f32.prompt_ids("白日依山尽"), 8, held)).compared
    assert result.texts.first_difference is not None and result.quality.perplexity_ratio > 5


def test_the_real_model_is_lost(smollm2_f32: LanguageModel) -> None:
    held = held_ids(smollm2_f32, held_text("en"), 32)
    result = measured(smollm2_f32, 1, Asked(smollm2_f32.prompt_ids("Name three fruits."), 2, held))
    assert result.kv_bytes_formula.ratio == 1 / 3 and result.compared.quality.perplexity_ratio > 10


@pytest.mark.parametrize("n_kv", [4, 3, 0, -1])
def test_what_cannot_be_merged_is_refused(pair: tuple[object, LanguageModel], n_kv: int) -> None:
    with pytest.raises(Refusal):
        merged(pair[1], n_kv)
