"""The exact estimate against transformers' own models, whose products torch counts on the meta device.

A second opinion beside `test_count`: these models are not built from our `ModelShape`, and their configurations reach
the estimate the way a visitor's config.json does. With eager attention and batched experts every product is visible to
the counter. Rotary positions are reckoned without a product it counts, so nothing has to be taken off.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel

from core.estimate.configs.huggingface import from_hf
from core.estimate.flops import decode_flops, head_flops, layers_flops, prefill_flops
from core.estimate.shape import LatentAttention, ModelShape

BATCH, WINDOW = 2, 8
COMMON: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
ROUTED: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, one KV head, tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "gemma2": ("gemma2", {"head_dim": 24, "sliding_window": WINDOW}),
    "phi3": ("phi3", {"sliding_window": None}),
    "olmo2": ("olmo2", {}),
    "gpt2": ("gpt2", {"n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 512, "vocab_size": 320}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("qwen2_moe", {**ROUTED, "shared_expert_intermediate_size": 56, "decoder_sparse_step": 1}),
    "qwen3_moe": ("qwen3_moe", {**ROUTED, "head_dim": 24, "decoder_sparse_step": 1}),
    "gpt_oss": (
        "gpt_oss",
        {"head_dim": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
    ),
    "deepseek_v2, plain queries": ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "q_lora_rank": 24}),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "q_lora_rank": 24}),
}
make_model: Any = AutoModelForCausalLM.from_config  # transformers leaves it without annotations
LENGTHS = [1, WINDOW - 1, WINDOW, WINDOW + 1, 21]


def on_meta(name: str) -> tuple[PreTrainedModel, ModelShape]:
    """The model without contents, and its shape by way of its configuration."""
    architecture, settings = MODELS[name]
    common = {} if architecture == "gpt2" else COMMON
    config = AutoConfig.for_model(architecture, **{**common, **settings})
    with torch.device("meta"):
        # "batched_mm" multiplies each row with its own experts; the other ways are invisible to the counter.
        options = {"experts_implementation": "batched_mm"} if has_experts(config) else {}
        model: PreTrainedModel = make_model(config, attn_implementation="eager", **options).eval()
    return model, from_hf(config.to_dict(), name=name)


def has_experts(config: Any) -> bool:
    """Whether the configuration tells of experts."""
    return any(hasattr(config, field) for field in ("num_experts", "num_local_experts", "n_routed_experts"))


def counted(model: PreTrainedModel, n_past: int, n_new: int) -> int:
    """FLOP of a pass over `n_new` positions behind `n_past` cached ones, the last position through the head."""
    cache = DynamicCache(config=model.config)
    ids = torch.zeros(BATCH, n_past + n_new, dtype=torch.int64, device="meta")
    seen = torch.ones_like(ids)  # an explicit mask: without one the model looks at contents, and meta has none
    with torch.no_grad():
        if n_past:
            model(ids[:, :n_past], attention_mask=seen[:, :n_past], cache=cache, logits_to_keep=1)
        with FlopCounterMode(display=False) as counter:
            model(ids[:, n_past:], attention_mask=seen, cache=cache, logits_to_keep=1)
    total: int = counter.get_total_flops()
    return total


@pytest.mark.parametrize("name", MODELS)
def test_prefill(name: str) -> None:
    """The n×n square in every layer: eager attention masks what a window hides, but multiplies it all the same."""
    model, shape = on_meta(name)
    assert [counted(model, 0, n) for n in LENGTHS] == [prefill_flops(shape, n, BATCH) for n in LENGTHS]


@pytest.mark.parametrize("name", [name for name, (_, settings) in MODELS.items() if "kv_lora_rank" not in settings])
def test_decode(name: str) -> None:
    """A layer with a window keeps W − 1 positions from step to step, and with the new one attends to min(n, W)."""
    model, shape = on_meta(name)
    assert [counted(model, n - 1, 1) for n in LENGTHS] == [decode_flops(shape, n, BATCH) for n in LENGTHS]


@pytest.mark.parametrize("name", [name for name, (_, settings) in MODELS.items() if "kv_lora_rank" in settings])
def test_latents_that_are_expanded_anew_at_every_step(name: str) -> None:
    """transformers decodes without absorbing: it expands every cached latent again. Just that is the difference."""
    model, shape = on_meta(name)
    for n in LENGTHS:
        attention = shape.groups[0].attention
        assert isinstance(attention, LatentAttention)
        one_expansion = attention.kv_rank * attention.n_heads * (attention.nope_dim + attention.value_dim)
        once = layers_flops(shape, 1, n - 1) + head_flops(shape)
        assert counted(model, n - 1, 1) == BATCH * (once + 2 * shape.n_layers * (n - 1) * one_expansion)
    assert counted(model, 500, 1) > 2 * decode_flops(shape, 501, BATCH)
