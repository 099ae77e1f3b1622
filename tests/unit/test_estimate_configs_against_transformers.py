"""What is read from a config.json against the model that transformers builds from it, to the number and by layer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from core.estimate.configs.families import FAMILIES
from core.estimate.configs.huggingface import from_hf
from core.estimate.shape import LatentAttention, ModelShape
from core.estimate.weights import parameters

# Widths that no two things share, so that a number taken from the wrong place shows.
DENSE: dict[str, Any] = {
    "num_hidden_layers": 7,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 76,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
APART = {**DENSE, "head_dim": 10}  # 6 · 10 ≠ 48
MHA = {**DENSE, "num_key_value_heads": None}
MOE = {**DENSE, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
LATENT = {
    **MOE,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 14,
    "q_lora_rank": 22,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 6,
    "v_head_dim": 9,
}
UNTIED = {"tie_word_embeddings": False}
TIED = {"tie_word_embeddings": True}
BIASED = {"attention_bias": True}
KINDS = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"] + ["full_attention"] * 3
GPT2 = {"n_layer": 3, "n_embd": 48, "n_head": 6, "n_positions": 32, "vocab_size": 101}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", DENSE),
    ("llama", {**APART, **TIED}),
    ("llama", {**MHA, **BIASED, "mlp_bias": True}),
    ("llama", {name: value for name, value in DENSE.items() if name != "num_key_value_heads"}),
    ("mistral", {**APART, "sliding_window": 16}),
    ("mistral", {**DENSE, "sliding_window": None}),
    ("ministral", {**APART, "sliding_window": 16}),
    ("ministral", {**APART, "sliding_window": 16, "layer_types": KINDS}),
    ("ministral3", APART),
    ("mixtral", {**DENSE, "num_local_experts": 5, "num_experts_per_tok": 2}),
    ("mixtral", {**APART, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 8}),
    ("qwen2", {**DENSE, **TIED}),
    ("qwen2", {**APART, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}),
    ("qwen2", {**DENSE, "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 3}),
    ("qwen2", {**DENSE, "use_sliding_window": True, "sliding_window": 16, "layer_types": KINDS}),
    ("qwen2_moe", {**MOE, "num_experts": 6, "shared_expert_intermediate_size": 36}),
    (
        "qwen2_moe",
        {
            **MOE,
            "num_experts": 6,
            "shared_expert_intermediate_size": 36,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "qkv_bias": False,
            "use_sliding_window": True,
            "sliding_window": 16,
            "max_window_layers": 5,
        },
    ),
    ("qwen3", {**APART, **TIED}),
    ("qwen3", DENSE),  # its own head_dim, 128
    ("qwen3", {**APART, **BIASED, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}),
    ("qwen3_moe", {**MOE, "num_experts": 6, "head_dim": 10}),
    ("qwen3_moe", {**MOE, "num_local_experts": 6, "decoder_sparse_step": 3, "mlp_only_layers": [0], **BIASED}),
    ("qwen3_moe", {**MOE, "num_experts": 6, "use_sliding_window": True, "sliding_window": 16}),
    ("gemma", DENSE),
    ("gemma", {**APART, **UNTIED}),
    ("gemma2", DENSE),
    ("gemma2", {**APART, **UNTIED, "layer_types": KINDS}),
    ("gemma3_text", {**APART, "sliding_window": 16}),
    ("gemma3_text", {**DENSE, **BIASED, "sliding_window_pattern": 3}),
    ("phi3", DENSE),
    ("phi3", {**MHA, **TIED, "sliding_window": 16}),
    ("glm", DENSE),
    ("glm", {**APART, "attention_bias": False, **TIED}),
    ("glm4", APART),
    (
        "glm4_moe",
        {**MOE, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "use_qk_norm": True},
    ),
    ("glm4_moe", {**MOE, "n_routed_experts": 8, "head_dim": 10, **BIASED}),
    ("deepseek_v2", {**LATENT, "n_group": 1}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 0}),
    ("deepseek_v3", LATENT),
    ("deepseek_v3", {**LATENT, "q_lora_rank": None, "n_shared_experts": 1}),
    ("gpt_oss", {**APART, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
    ("gpt_oss", {**MOE, "num_local_experts": 4, "attention_bias": False, "layer_types": KINDS}),
    ("olmo2", {**DENSE, **BIASED}),
    ("olmo2", {**APART, **TIED}),
    ("olmo3", {**DENSE, "sliding_window": 8}),
    ("olmoe", {**DENSE, "num_experts": 6, "num_experts_per_tok": 2}),
    ("gpt2", GPT2),
    ("gpt2", {**GPT2, **UNTIED, "n_inner": 70}),
    ("smollm3", DENSE),
    ("smollm3", {**DENSE, **BIASED, "mlp_bias": True, "use_sliding_window": True, "sliding_window": 9, **UNTIED}),
    (
        "smollm3",
        {**DENSE, "use_sliding_window": True, "sliding_window": 9, "no_rope_layers": [1, 0, 1, 1, 0, 1, 1]},
    ),
    ("granite", {**DENSE, **BIASED, "mlp_bias": True}),
    ("cohere", {**DENSE, "use_qk_norm": True}),
    ("cohere", {**DENSE, **BIASED, **UNTIED}),
    ("cohere2", {**DENSE, "sliding_window": 8, "sliding_window_pattern": 3}),
    ("cohere2", DENSE),
    ("minimax_m2", {**APART, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("seed_oss", APART),
    ("seed_oss", {**DENSE, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True}),
    ("starcoder2", {**DENSE, "sliding_window": 8}),
    ("starcoder2", {**DENSE, "use_bias": False, **UNTIED}),
]
NESTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gemma3", APART, {}),
    ("qwen2_vl", {**DENSE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 4}, {}),
    ("qwen2_vl", DENSE, TIED),
    ("qwen2_5_vl", DENSE, {}),
    ("qwen3_vl", APART, {}),
    ("qwen3_vl", DENSE, TIED),
    ("qwen3_vl_moe", {**MOE, "num_experts": 6, "decoder_sparse_step": 2}, {}),
    ("mistral3", {**APART, "model_type": "mistral", "sliding_window": None}, UNTIED),
    ("mistral3", {**APART, "model_type": "ministral3"}, TIED),
]
# transformers keeps it as a buffer, but it is trained (DeepSeek-V3 report, 2.1.2) and part of every published total.
TRAINED_BUFFER = "e_score_correction_bias"
NOT_TEXT = ("visual", "vision", "multi_modal_projector")


def names(case: tuple[Any, ...]) -> str:
    return str(case[0])


def numbers(model: torch.nn.Module) -> int:
    """Trained numbers of the text part; a tied table is one parameter and counted once."""
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(TRAINED_BUFFER)]
    tensors = [*model.named_parameters(), *buffers]
    return sum(tensor.numel() for name, tensor in tensors if not any(part in name for part in NOT_TEXT))


def windows(config: Any) -> list[int | None]:
    """The window of each layer as the model's masks have it."""
    window, n_layers = getattr(config, "sliding_window", None), config.num_hidden_layers
    kinds = getattr(config, "layer_types", None)
    if kinds is None:  # one mask for all; the families that know no windows have no such field
        return [window] * n_layers
    return [window if kind == "sliding_attention" else None for kind in kinds]


def expected_groups(shape: ModelShape) -> list[int | None]:
    """As many windows as there are layers, sorted: the groups do not keep the layers' order."""
    found: list[int | None] = []
    for group in shape.groups:
        found += [group.attention.window if group.attention else None] * group.n_layers
    return sorted(found, key=str)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_counts_are_those_of_transformers(case: tuple[str, dict[str, Any]]) -> None:
    model_type, settings = case
    config = AutoConfig.for_model(model_type, **settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = from_hf({"model_type": model_type, **settings}, name="m")
    assert parameters(shape).total == numbers(model)
    if not isinstance(shape.groups[0].attention, LatentAttention):
        assert expected_groups(shape) == sorted(windows(config), key=str)
    # What transformers writes of it, with all its defaults spelled out, is read as the same model.
    written = from_hf(json.loads(config.to_json_string(use_diff=False)), name="m")
    assert written.groups == shape.groups and parameters(written) == parameters(shape)


@pytest.mark.parametrize("case", NESTED, ids=names)
def test_text_parts_are_those_of_transformers(case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    model_type, settings, around = case
    config = AutoConfig.for_model(model_type, text_config=settings, **around)
    config.vision_config.num_hidden_layers = config.vision_config.depth = 1
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    shape = from_hf({"model_type": model_type, "text_config": settings, **around}, name="m")
    assert parameters(shape).total == numbers(model)
    written = from_hf(json.loads(config.to_json_string(use_diff=False)), name="m")
    assert written.groups == shape.groups and parameters(written) == parameters(shape)


def test_every_family_is_compared() -> None:
    """But for the two that transformers does not have; test_estimate_configs has their published totals."""
    compared = {model_type for model_type, *_ in [*CASES, *NESTED]}
    assert set(FAMILIES) - compared == {"chatglm", "internlm2"}
