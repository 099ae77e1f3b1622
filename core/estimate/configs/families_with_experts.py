"""What is peculiar to each family with experts. As `families` has it for the dense ones."""

from __future__ import annotations

from dataclasses import replace

from core.estimate.configs.family import ATTENTION_BIAS, WIDTH_128, Family

_NAMED_EXPERTS = {"num_experts": ("num_experts", "num_local_experts")}
_LOCAL_EXPERTS = {"num_experts": ("num_local_experts", "num_experts")}
_ROUTED_EXPERTS = {
    "num_experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "num_nextn_predict_layers": ("num_nextn_predict_layers", "num_mtp_layers"),
}
_NO_LATENT_BIAS: dict[str, tuple[object, ...]] = {"attention_bias": (False,), "mlp_bias": (False,)}

_QWEN3_MOE = Family(
    architectures=("Qwen3MoeForCausalLM",),
    spelled=_NAMED_EXPERTS,
    defaults={"num_key_value_heads": 4, "sliding_window": 4096, "decoder_sparse_step": 1},
    qkv_bias=ATTENTION_BIAS,
    output_bias=ATTENTION_BIAS,
    qk_norm="head",
    window="all_if_on",
    experts="every_nth",
    expert_width="moe_intermediate_size",
)
_DEEPSEEK_V2 = Family(
    architectures=("DeepseekV2ForCausalLM",),
    spelled=_ROUTED_EXPERTS,
    defaults={"q_lora_rank": 1536, "n_shared_experts": 2, "first_k_dense_replace": 0},
    allowed=_NO_LATENT_BIAS,
    experts="behind_dense",
    expert_width="moe_intermediate_size",
    shared="count",
    is_latent=True,
)
_DEEPSEEK_V3 = replace(
    _DEEPSEEK_V2,
    architectures=("DeepseekV3ForCausalLM",),
    defaults={"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3},
    has_router_bias=True,
)

EXPERT_FAMILIES: dict[str, Family] = {
    "mixtral": Family(
        architectures=("MixtralForCausalLM",),
        spelled=_LOCAL_EXPERTS,
        defaults={"num_key_value_heads": 8},
        window="all",
        experts="all",
    ),
    "qwen2_moe": Family(
        architectures=("Qwen2MoeForCausalLM",),
        spelled=_NAMED_EXPERTS,
        defaults={
            "num_key_value_heads": 16,
            "sliding_window": 4096,
            "max_window_layers": 28,
            "decoder_sparse_step": 1,
            "qkv_bias": True,
        },
        qkv_bias=("qkv_bias",),
        window="every_second",
        experts="every_nth",
        expert_width="moe_intermediate_size",
        shared="width",
    ),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe": replace(
        _QWEN3_MOE,
        architectures=("Qwen3VLMoeForConditionalGeneration",),
        defaults={"num_key_value_heads": 16, "decoder_sparse_step": 1},
        window="none",
    ),
    "glm4_moe": Family(
        architectures=("Glm4MoeForCausalLM",),
        spelled=_ROUTED_EXPERTS,
        defaults={"num_key_value_heads": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
        qkv_bias=ATTENTION_BIAS,
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        experts="behind_dense",
        expert_width="moe_intermediate_size",
        shared="count",
        has_router_bias=True,
    ),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "gpt_oss": Family(
        architectures=("GptOssForCausalLM",),
        spelled=_LOCAL_EXPERTS,
        defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128, "attention_bias": True},
        qkv_bias=ATTENTION_BIAS,
        output_bias=ATTENTION_BIAS,
        has_sinks=True,
        window="pattern",
        window_pattern=2,
        experts="all",
        has_router_bias=True,
        experts_have_bias=True,
    ),
    "olmoe": Family(
        architectures=("OlmoeForCausalLM",),
        spelled=_NAMED_EXPERTS,
        qkv_bias=ATTENTION_BIAS,
        output_bias=ATTENTION_BIAS,
        qk_norm="full",
        experts="all",
    ),
    "minimax_m2": Family(
        architectures=("MiniMaxM2ForCausalLM",),
        spelled=_LOCAL_EXPERTS,
        defaults={**WIDTH_128, "num_key_value_heads": 8},
        qk_norm="full",
        experts="all",
        has_router_bias=True,
    ),
}
