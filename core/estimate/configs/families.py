"""What is peculiar to each family of models: how its config.json spells things, and what its class builds unasked.

Everything here is as transformers builds the family (5.24), or for chatglm and internlm2 the code that their makers
publish beside the weights; tests compare the counts. What is the same everywhere is not repeated per family.
"""

from __future__ import annotations

from dataclasses import replace

from core.estimate.configs.families_with_experts import EXPERT_FAMILIES
from core.estimate.configs.family import ATTENTION_BIAS, WIDTH_128, Family

_TIED = {"tie_word_embeddings": True}
_LLAMA = Family(
    architectures=("LlamaForCausalLM",), qkv_bias=ATTENTION_BIAS, output_bias=ATTENTION_BIAS, ffn_bias=("mlp_bias",)
)
_MISTRAL = Family(
    architectures=("MistralForCausalLM",),
    defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    window="all",
)
_QWEN2 = Family(
    architectures=("Qwen2ForCausalLM",),
    defaults={"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
    qkv_bias=True,
    window="from_layer",
)
_QWEN2_VL = replace(
    _QWEN2,
    architectures=("Qwen2VLForConditionalGeneration",),
    defaults={"num_key_value_heads": 8, "sliding_window": 4096, "max_window_layers": 80},
    is_tied_by_either=True,
)
_QWEN3 = replace(
    _QWEN2,
    architectures=("Qwen3ForCausalLM",),
    defaults={**_QWEN2.defaults, **WIDTH_128},
    qkv_bias=ATTENTION_BIAS,
    output_bias=ATTENTION_BIAS,
    qk_norm="head",
)
_GEMMA = Family(
    architectures=("GemmaForCausalLM",),
    defaults={**_TIED, "num_key_value_heads": 16, "head_dim": 256},
    qkv_bias=ATTENTION_BIAS,
    output_bias=ATTENTION_BIAS,
)
_GEMMA2 = replace(
    _GEMMA,
    architectures=("Gemma2ForCausalLM",),
    defaults={**_TIED, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    norms=4,
    window="pattern",
    window_pattern=2,
)
_GEMMA3 = replace(
    _GEMMA2,
    architectures=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    # Google's own multimodal files state only what differs from these.
    defaults={
        **_GEMMA2.defaults,
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "max_position_embeddings": 131_072,
    },
    allowed={"use_bidirectional_attention": (False,)},
    qk_norm="head",
    window_pattern=6,
    reads_pattern=True,
)
_GLM = Family(
    architectures=("GlmForCausalLM",),
    defaults={**WIDTH_128, "num_key_value_heads": 2, "attention_bias": True},
    qkv_bias=ATTENTION_BIAS,
)
_OLMO2 = Family(
    architectures=("Olmo2ForCausalLM",), qkv_bias=ATTENTION_BIAS, output_bias=ATTENTION_BIAS, qk_norm="full"
)
_COHERE = Family(
    architectures=("CohereForCausalLM",),
    defaults=_TIED,
    qkv_bias=ATTENTION_BIAS,
    output_bias=ATTENTION_BIAS,
    qk_norm="full",
    qk_norm_if="use_qk_norm",
    norms=1,
)
FAMILIES: dict[str, Family] = EXPERT_FAMILIES | {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "ministral": replace(_MISTRAL, architectures=("MinistralForCausalLM",)),
    "ministral3": replace(
        _MISTRAL, architectures=("Ministral3ForCausalLM",), defaults={**WIDTH_128, "num_key_value_heads": 8}
    ),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2_VL,
    "qwen2_5_vl": replace(_QWEN2_VL, architectures=("Qwen2_5_VLForConditionalGeneration",)),
    "qwen3": _QWEN3,
    "qwen3_vl": replace(
        _QWEN3,
        architectures=("Qwen3VLForConditionalGeneration",),
        defaults={**WIDTH_128, "num_key_value_heads": 32},
        window="none",
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "phi3": Family(architectures=("Phi3ForCausalLM",), window="all"),
    "glm": _GLM,
    "glm4": replace(_GLM, architectures=("Glm4ForCausalLM",), norms=4),
    "chatglm": Family(
        architectures=("ChatGLMModel", "ChatGLMForConditionalGeneration"),
        spelled={
            "num_hidden_layers": ("num_layers",),
            "vocab_size": ("padded_vocab_size",),
            "intermediate_size": ("ffn_hidden_size",),
            "head_dim": ("kv_channels",),
            "num_key_value_heads": ("multi_query_group_num",),
            "max_position_embeddings": ("seq_length",),
        },
        defaults={**WIDTH_128, "num_key_value_heads": 1},
        allowed={"rmsnorm": (True,), "post_layer_norm": (True,)},
        qkv_bias=("add_qkv_bias", "add_bias_linear"),
        output_bias=("add_bias_linear",),
        ffn_bias=("add_bias_linear",),
        kv_heads_if="multi_query_attention",
    ),
    "internlm2": Family(
        architectures=("InternLM2ForCausalLM",), defaults={"bias": True}, qkv_bias=("bias",), output_bias=("bias",)
    ),
    "olmo2": _OLMO2,
    "olmo3": replace(
        _OLMO2,
        architectures=("Olmo3ForCausalLM",),
        defaults={"sliding_window": 4096},
        window="pattern",
        window_pattern=4,
    ),
    "gpt2": Family(
        architectures=("GPT2LMHeadModel",),
        spelled={
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "hidden_size": ("n_embd", "hidden_size"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "max_position_embeddings": ("n_positions", "max_position_embeddings"),
            "intermediate_size": ("n_inner",),
        },
        defaults=_TIED,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        is_gated=False,
        norms_have_bias=True,
        has_positions=True,
    ),
    "smollm3": Family(
        architectures=("SmolLM3ForCausalLM",),
        defaults={**_TIED, "num_key_value_heads": 4, "no_rope_layer_interval": 4},
        qkv_bias=ATTENTION_BIAS,
        output_bias=ATTENTION_BIAS,
        ffn_bias=("mlp_bias",),
        window="without_rope",
    ),
    "granite": replace(_LLAMA, architectures=("GraniteForCausalLM",)),
    "cohere": _COHERE,
    "cohere2": replace(
        _COHERE,
        architectures=("Cohere2ForCausalLM",),
        defaults={**_TIED, "sliding_window": 4096},
        qk_norm="none",
        qk_norm_if="",
        window="pattern",
        window_pattern=4,
        reads_pattern=True,
    ),
    "seed_oss": Family(
        architectures=("SeedOssForCausalLM",),
        defaults={**WIDTH_128, "num_key_value_heads": 8, "attention_bias": True},
        qkv_bias=ATTENTION_BIAS,
        output_bias=("attention_out_bias",),
        ffn_bias=("mlp_bias",),
    ),
    "starcoder2": Family(
        architectures=("Starcoder2ForCausalLM",),
        defaults={**_TIED, "num_key_value_heads": 2, "use_bias": True},
        qkv_bias=("use_bias",),
        output_bias=("use_bias",),
        ffn_bias=("use_bias",),
        is_gated=False,
        norms_have_bias=True,
        window="all",
    ),
}

# Other names of the same family: text parts of multimodal models, and a model that took over another's class.
SAME_AS = {
    "gemma3_text": "gemma3",
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_5_vl",
    "qwen3_vl_text": "qwen3_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "kimi_k2": "deepseek_v3",
}
