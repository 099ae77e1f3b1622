"""Rotary frequencies against transformers' own, for each way of stretching the context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from core.model.config import RopeConfig
from core.model.files.fields import Fields
from core.model.files.rope_huggingface import rope_from_huggingface
from core.model.rotary import inverse_frequencies

CONTEXT = 4096
CASES: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707},
    {"rope_type": "yarn", "factor": 8.0, "mscale": 0.7},
    {"rope_type": "yarn", "factor": 1.0},
]


@pytest.mark.parametrize("theta", [10_000.0, 1_000_000.0])
@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(value) for value in case.values()))
def test_scaled_frequencies_equal_transformers(case: dict[str, Any], head_dim: int, theta: float) -> None:
    parameters = {**case, "rope_theta": theta}
    config = LlamaConfig(head_dim=head_dim, max_position_embeddings=CONTEXT, rope_parameters=dict(parameters))
    expected, expected_factor = ROPE_INIT_FUNCTIONS[case["rope_type"]](config, torch.device("cpu"))
    rope = rope_from_huggingface(Fields({"rope_parameters": parameters}, "config.json"), CONTEXT)

    frequencies, factor = inverse_frequencies(rope, head_dim, CONTEXT)

    assert frequencies.dtype == torch.float32 and frequencies.shape == (head_dim // 2,)
    torch.testing.assert_close(frequencies, expected, rtol=1e-6, atol=0.0)
    assert factor == pytest.approx(expected_factor, rel=1e-12)


@pytest.mark.parametrize("theta", [10_000.0, 100_000.0])
def test_plain_frequencies_are_transformers_to_the_bit(theta: float) -> None:
    config = LlamaConfig(head_dim=64, rope_parameters={"rope_type": "default", "rope_theta": theta})
    frequencies, factor = inverse_frequencies(RopeConfig(theta=theta), 64, CONTEXT)
    assert torch.equal(frequencies, LlamaRotaryEmbedding(config).inv_freq)
    assert factor == 1.0


def test_divisors_divide_each_frequency_by_its_own() -> None:
    plain, _ = inverse_frequencies(RopeConfig(), 8, CONTEXT)
    divisors = (1.0, 2.0, 4.0, 8.0)
    divided, factor = inverse_frequencies(RopeConfig(scaling="divisors", divisors=divisors), 8, CONTEXT)
    assert torch.equal(divided, plain / torch.tensor(divisors))
    assert factor == 1.0
