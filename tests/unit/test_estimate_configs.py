"""config.json as the estimates read it: rules of each family, notes on what was assumed, refusals that name a field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.estimate.configs.families import FAMILIES
from core.estimate.configs.huggingface import from_hf
from core.estimate.kv import kv_bytes_per_token
from core.estimate.shape import Attention, Experts, FeedForward, LatentAttention, ModelShape
from core.estimate.weights import parameters
from core.refusal import Refusal

ROOT = Path(__file__).resolve().parents[2]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
PLAIN = {name: value for name, value in LLAMA.items() if name not in ("model_type", "architectures")}
QWEN2 = {**PLAIN, "model_type": "qwen2"}
MIXTRAL = {**PLAIN, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3_MOE = {**PLAIN, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
QWEN3_MOE |= {"moe_intermediate_size": 20}
SHARED_MOE = {**QWEN3_MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 36}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2",
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "vocab_size": 102400,
}
GLM4_9B: dict[str, Any] = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "num_layers": 40,
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "padded_vocab_size": 151552,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "add_qkv_bias": True,
    "add_bias_linear": False,
    "rmsnorm": True,
    "post_layer_norm": True,
    "seq_length": 131072,
    "tie_word_embeddings": False,
}
CHATGLM2_6B = {**GLM4_9B, "num_layers": 28, "padded_vocab_size": 65024, "seq_length": 32768}
INTERNLM25_7B: dict[str, Any] = {
    "model_type": "internlm2",
    "architectures": ["InternLM2ForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 92544,
    "max_position_embeddings": 32768,
    "bias": False,
}
# As Google publishes it: whatever equals the class's defaults is left out.
GEMMA3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model", "num_hidden_layers": 27},
}
KINDS = ["full_attention", "sliding_attention", "full_attention", "full_attention"]


def read(values: dict[str, Any], **changes: Any) -> ModelShape:
    return from_hf({**values, **changes}, name="m")


def without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def attention(shape: ModelShape) -> Attention:
    """The attention of a model whose layers are alike."""
    assert len(shape.groups) == 1 and isinstance(shape.groups[0].attention, Attention)
    return shape.groups[0].attention


def windows(shape: ModelShape) -> dict[int | None, int]:
    """Window → how many layers have it."""
    found: dict[int | None, int] = {}
    for group in shape.groups:
        assert group.attention is not None
        found[group.attention.window] = found.get(group.attention.window, 0) + group.n_layers
    return found


def notes(shape: ModelShape) -> dict[str, str]:
    assert all(note.sentence("zh") != note.sentence("en") for note in shape.notes)
    return {note.key.removeprefix("estimate.note_"): note.sentence() for note in shape.notes}


def refusal(values: dict[str, Any], **changes: Any) -> str:
    """The sentence with which a config is refused."""
    with pytest.raises(Refusal) as caught:
        read(values, **changes)
    english, chinese = caught.value.sentence("en"), caught.value.sentence("zh")
    assert english.isprintable() and chinese.isprintable() and english != chinese
    return english


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (DEEPSEEK_V3, 671_026_419_200),
        (DEEPSEEK_V2_LITE, 15_706_484_224),
        (GLM4_9B, 9_399_951_360),
        (CHATGLM2_6B, 6_243_584_000),
        (INTERNLM25_7B, 7_737_708_544),
        (GEMMA3_4B, 3_880_263_168),
    ],
    ids=["deepseek-v3", "deepseek-v2-lite", "glm-4-9b", "chatglm2-6b", "internlm2.5-7b", "gemma-3-4b"],
)
def test_published_totals(config: dict[str, Any], total: int) -> None:
    assert parameters(read(config)).total == total


def test_a_plain_model() -> None:
    shape = read(LLAMA)
    assert (shape.name, shape.architecture, shape.n_layers, shape.d_model) == ("m", "llama", 4, 48)
    assert (shape.vocab_size, shape.context_limit, shape.tied_head, shape.n_positions) == (100, 512, False, 0)
    (group,) = shape.groups
    assert group.attention == Attention(n_heads=6, n_kv_heads=3, head_dim=8)
    assert group.feed_forward == FeedForward(d_ff=64) and group.norm_width == 96 and shape.final_norm_width == 48
    assert notes(shape).keys() == {"head_dim"} and "48 / 6 = 8" in notes(shape)["head_dim"]


def test_stated_head_dim_is_used() -> None:
    """known-faults A02, with its sizes: 147,456 bytes a token, not 92,160."""
    shape = read(
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True, "head_dim": 128},
        num_hidden_layers=36,
        hidden_size=2560,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=9728,
        vocab_size=151936,
    )
    assert attention(shape).head_dim == 128 and "head_dim" not in notes(shape)
    assert kv_bytes_per_token(shape) == 147_456
    assert parameters(shape).total == 4_022_468_096


def test_head_dim_where_none_is_stated() -> None:
    """Width over heads, said; a class with a width of its own has that, said too."""
    assert attention(read(LLAMA, head_dim=None)).head_dim == 8
    own = read({**PLAIN, "model_type": "qwen3"})
    assert attention(own).head_dim == 128 and "head_dim = 128" in notes(own)["assumed"]
    assert "head_dim is not stated" in refusal(LLAMA, hidden_size=50)
    assert attention(read(LLAMA, hidden_size=50, head_dim=8)).head_dim == 8


def test_kv_heads_are_a_count() -> None:
    """known-faults A03: 32 query heads, field 8, one layer: 4,096 bytes a token, four queries to a KV head."""
    shape = read(LLAMA, num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=8, head_dim=128)
    assert attention(shape).n_kv_heads == 8 and kv_bytes_per_token(shape) == 4096
    assert kv_bytes_per_token(read(GLM4_9B, num_layers=1)) == 2 * 2 * 128 * 2


def test_kv_heads_where_none_are_stated() -> None:
    silent = without(PLAIN, "num_key_value_heads")
    assert attention(read({**silent, "model_type": "llama"})).n_kv_heads == 6
    own = read({**silent, "model_type": "glm"})
    assert attention(own).n_kv_heads == 2 and "num_key_value_heads = 2" in notes(own)["assumed"]
    assert attention(read({**silent, "model_type": "glm"}, num_key_value_heads=None)).n_kv_heads == 6
    assert attention(read(GLM4_9B, multi_query_attention=False)).n_kv_heads == 32
    # A default that does not fit says nothing about this model.
    assert "does not state num_key_value_heads" in refusal({**silent, "model_type": "mistral"})


def test_a_window_that_is_switched_off() -> None:
    """known-faults A14."""
    off = read(QWEN2, sliding_window=4096, use_sliding_window=False, max_window_layers=2)
    assert windows(off) == {None: 4} and "4,096" in notes(off)["window_off"]
    on = read(QWEN2, sliding_window=4096, use_sliding_window=True, max_window_layers=2)
    assert windows(on) == {None: 2, 4096: 2}
    assert on.groups[0].attention is not None and on.groups[0].attention.window is None
    assert notes(on)["window"].startswith("2 of 4 layers") and "window_off" not in notes(on)
    assert windows(read(QWEN2, sliding_window=4096)) == {None: 4}
    assert windows(read(QWEN2, sliding_window=None, use_sliding_window=True)) == {None: 4}


def test_layer_types_override_every_rule() -> None:
    for model_type in ("qwen2", "gemma2", "gpt_oss", "mistral", "llama"):
        values = {**MIXTRAL, "model_type": model_type, "layer_types": KINDS, "sliding_window": 16}
        assert windows(read(values)) == {None: 3, 16: 1}, model_type
    assert windows(read(QWEN2, layer_types=["full_attention"] * 4, use_sliding_window=True)) == {None: 4}
    assert "use_sliding_window" in refusal(QWEN2, layer_types=KINDS, sliding_window=16, use_sliding_window=False)
    assert "sliding_window" in refusal(LLAMA, layer_types=KINDS)
    assert "3 entries" in refusal(LLAMA, layer_types=KINDS[:3], sliding_window=16)
    for wrong in ("linear_attention", "conv", "no_such_kind", 7, None, ["full_attention"]):
        assert "layer_types" in refusal(LLAMA, layer_types=[wrong, *KINDS[:3]], sliding_window=16)
    assert "linear_attention" in refusal(QWEN2, layer_types=["linear_attention"] * 4)
    assert "layer_types" in refusal(LLAMA, layer_types="full_attention")
    assert "layer_types" in refusal(DEEPSEEK_V3, layer_types=["sliding_attention"] * 61)


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("mistral", {"sliding_window": 16}, {16: 4}),
        ("mistral", {"sliding_window": None}, {None: 4}),
        ("mistral", {}, {4096: 4}),
        ("mixtral", {}, {None: 4}),
        ("phi3", {"sliding_window": 16}, {16: 4}),
        ("phi3", {}, {None: 4}),
        ("gemma", {"sliding_window": 16}, {None: 4}),
        ("gemma2", {"sliding_window": 16, "num_hidden_layers": 5}, {16: 3, None: 2}),
        ("gemma3_text", {"sliding_window": 16, "num_hidden_layers": 13}, {16: 11, None: 2}),
        ("gemma3_text", {"sliding_window": 16, "sliding_window_pattern": 2}, {16: 2, None: 2}),
        ("gpt_oss", {"num_hidden_layers": 5}, {128: 3, None: 2}),
        ("gpt_oss", {"sliding_window": None}, {None: 4}),
        ("olmo3", {"sliding_window": 16, "num_hidden_layers": 8}, {16: 6, None: 2}),
        ("qwen3_moe", {"sliding_window": 16, "use_sliding_window": True}, {16: 4}),
        ("qwen2_moe", {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}, {16: 1, None: 3}),
        ("smollm3", {"sliding_window": 16, "use_sliding_window": True}, {16: 1, None: 3}),
    ],
)
def test_window_rules(model_type: str, changes: dict[str, Any], expected: dict[int | None, int]) -> None:
    shape = read({**MIXTRAL, **SHARED_MOE, "model_type": model_type, **changes})
    assert windows(shape) == expected
    assert ("window" in notes(shape)) == (set(expected) != {None})


def test_gemma2_begins_with_a_window_and_gemma3_ends_six_with_none() -> None:
    gemma2, gemma3 = read({**PLAIN, "model_type": "gemma2"}), read(GEMMA3_4B)
    assert [(group.n_layers, group.attention and group.attention.window) for group in gemma2.groups] == [
        (2, 4096),
        (2, None),
    ]
    assert windows(gemma3) == {1024: 29, None: 5}
    for shape in (gemma2, gemma3):
        assert all(group.norm_width == 4 * shape.d_model for group in shape.groups)


def test_heads_are_tied_as_the_class_has_it() -> None:
    for model_type in ("gemma", "gemma2", "gemma3_text", "gpt2", "cohere", "smollm3", "starcoder2"):
        assert FAMILIES[model_type.removesuffix("_text")].defaults["tie_word_embeddings"] is True
    assert read({**PLAIN, "model_type": "gemma"}).tied_head
    assert not read({**PLAIN, "model_type": "gemma"}, tie_word_embeddings=False).tied_head
    assert not read(QWEN2).tied_head and read(QWEN2, tie_word_embeddings=True).tied_head
    assert "tie_word_embeddings" in refusal(QWEN2, tie_word_embeddings="yes")


def test_gpt2_under_its_own_names() -> None:
    gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    shape = read(gpt2, n_ctx=1024, activation_function="gelu_new")
    assert shape.n_positions == shape.context_limit == 1024 and shape.tied_head
    assert shape.groups[0].norm_width == 4 * 768 and shape.final_norm_width == 2 * 768
    assert shape.groups[0].feed_forward == FeedForward(d_ff=3072, is_gated=False, has_bias=True)
    assert attention(shape).has_qkv_bias and attention(shape).has_output_bias
    assert parameters(shape).total == 124_439_808
    assert "n_embd / hidden_size" in refusal(gpt2, hidden_size=48)
    assert "n_positions" in refusal(without(gpt2, "n_positions"))
    assert "n_head" in refusal(gpt2, n_head=0) and "n_inner" in refusal(gpt2, n_inner=-1)


def test_biases_by_family() -> None:
    def biases(values: dict[str, Any], **changes: Any) -> tuple[bool, bool]:
        found = attention(read(values, **changes))
        return found.has_qkv_bias, found.has_output_bias

    assert biases(QWEN2) == (True, False) and biases(QWEN2, attention_bias=False) == (True, False)
    assert biases(LLAMA, attention_bias=True) == (True, True)
    assert biases({**PLAIN, "model_type": "glm4"}) == (True, False)
    assert biases({**PLAIN, "model_type": "internlm2"}) == (True, True)
    assert biases(INTERNLM25_7B) == (False, False)
    assert biases(GLM4_9B) == (True, False) and biases(GLM4_9B, add_bias_linear=True) == (True, True)
    assert biases({**PLAIN, "model_type": "mistral"}, attention_bias=True) == (False, False)


def test_experts_and_where_they_are() -> None:
    shape = read(DEEPSEEK_V3)
    dense, sparse = shape.groups
    assert (dense.n_layers, sparse.n_layers) == (3, 58) and dense.feed_forward == FeedForward(d_ff=18432)
    assert sparse.feed_forward == Experts(n_experts=256, n_active=8, d_expert=2048, d_shared=2048, has_router_bias=True)
    assert [group.n_layers for group in read(DEEPSEEK_V3, moe_layer_freq=2).groups] == [32, 29]
    every_other = read(QWEN3_MOE, decoder_sparse_step=2, mlp_only_layers=[3])
    assert [(group.n_layers, type(group.feed_forward)) for group in every_other.groups] == [
        (3, FeedForward),
        (1, Experts),
    ]
    shared = read(SHARED_MOE).groups[0].feed_forward
    assert isinstance(shared, Experts) and shared.d_shared == 36 and shared.has_shared_gate
    oss = read({**MIXTRAL, "model_type": "gpt_oss"}).groups[0]
    assert isinstance(oss.feed_forward, Experts) and oss.feed_forward.has_bias and oss.feed_forward.has_router_bias
    assert isinstance(oss.attention, Attention) and oss.attention.has_sinks
    # The dense width of a model all of whose layers have experts means nothing.
    assert read(without(QWEN3_MOE, "intermediate_size")).groups == read(QWEN3_MOE).groups


def test_latent_attention() -> None:
    shape = read(DEEPSEEK_V3)
    expected = LatentAttention(n_heads=128, query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    assert all(group.attention == expected for group in shape.groups)
    assert {"latent", "quantised", "further_tokens"} == notes(shape).keys()
    assert "512" in notes(shape)["latent"] and "64" in notes(shape)["latent"] and "fp8" in notes(shape)["quantised"]
    assert "num_nextn_predict_layers" in notes(shape)["further_tokens"]
    direct = read(DEEPSEEK_V2_LITE).groups[0].attention
    assert isinstance(direct, LatentAttention) and direct.query_rank is None
    assert read(DEEPSEEK_V3, model_type="kimi_k2").groups == shape.groups
    assert "further_tokens" not in notes(read(DEEPSEEK_V3, num_nextn_predict_layers=0))
    assert "attention_bias" in refusal(DEEPSEEK_V3, attention_bias=True)


def test_text_part_of_a_multimodal_model() -> None:
    shape = read(GEMMA3_4B)
    assert (shape.architecture, shape.vocab_size, shape.context_limit) == ("gemma3_text", 262_208, 131_072)
    assert shape.tied_head and shape.groups[0].attention is not None and shape.groups[0].attention.n_heads == 8
    assumed = notes(shape)["assumed"]
    for setting in ("num_attention_heads = 8", "num_key_value_heads = 4", "head_dim = 256", "vocab_size = 262,208"):
        assert setting in assumed
    assert "text_part" in notes(shape)


def test_two_levels_may_differ_in_what_is_not_counted() -> None:
    around = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {}}
    inner = {**LLAMA, "torch_dtype": "bfloat16", "transformers_version": "5.0", "eos_token_id": 2}
    nested = {
        **around,
        "torch_dtype": "float32",
        "transformers_version": "4.5",
        "eos_token_id": 3,
        "text_config": inner,
    }
    assert read(nested).groups == read(LLAMA).groups and not read(nested).tied_head
    assert read(nested, tie_word_embeddings=True).tied_head
    assert read(nested, hidden_size=48).groups == read(LLAMA).groups
    assert "text_config.hidden_size" in refusal(nested, hidden_size=64)
    assert "text_config.num_key_value_heads" in refusal(nested, num_key_value_heads=6)
    assert "text_config" in refusal(LLAMA, text_config=[1]) and "text_config" in refusal(LLAMA, text_config="x")
    assert "another family" in refusal(nested, model_type="qwen2")
    assert "no_such_type" in refusal(around, text_config={**PLAIN, "model_type": "no_such_type"})


def test_which_family_it_is() -> None:
    assert read(without(LLAMA, "model_type")).architecture == "llama"
    assert read(without(LLAMA, "architectures")).architecture == "llama"
    assert read(LLAMA, architectures=["SomeNewHead"]).architecture == "llama"
    assert "model_type" in refusal(PLAIN) and "model_type" in refusal(PLAIN, model_type=7)
    unknown = refusal(LLAMA, model_type="mamba")
    assert "mamba" in unknown and all(known in unknown for known in FAMILIES)
    assert "architectures Qwen2ForCausalLM" in refusal(LLAMA, architectures=["Qwen2ForCausalLM"])
    assert "architectures" in refusal(LLAMA, architectures="LlamaForCausalLM")
    assert "is_encoder_decoder" in refusal(LLAMA, is_encoder_decoder=True)
    assert "use_bidirectional_attention" in refusal(GEMMA3_4B, use_bidirectional_attention=True)


@pytest.mark.parametrize("value", [None, -1, 0, 1 << 40, 3.0, float("nan"), float("inf"), "4", [4], {}, True])
@pytest.mark.parametrize(
    ("values", "field"),
    [
        (LLAMA, "num_hidden_layers"),
        (LLAMA, "hidden_size"),
        (LLAMA, "num_attention_heads"),
        (LLAMA, "intermediate_size"),
        (LLAMA, "vocab_size"),
        (MIXTRAL, "num_local_experts"),
        (MIXTRAL, "num_experts_per_tok"),
        (QWEN3_MOE, "moe_intermediate_size"),
        (QWEN3_MOE, "decoder_sparse_step"),
        (SHARED_MOE, "shared_expert_intermediate_size"),
        (DEEPSEEK_V3, "kv_lora_rank"),
        (DEEPSEEK_V3, "qk_rope_head_dim"),
        (DEEPSEEK_V3, "n_routed_experts"),
        (GLM4_9B, "num_layers"),
        (GLM4_9B, "padded_vocab_size"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(values: dict[str, Any], field: str, value: Any) -> None:
    assert field in refusal(values, **{field: value})


@pytest.mark.parametrize("value", [-1, 0, 1 << 40, 3.0, float("nan"), "4", [4], True])
@pytest.mark.parametrize("field", ["num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window"])
def test_optional_numbers_are_numbers_where_they_are_given(field: str, value: Any) -> None:
    assert field in refusal({**PLAIN, "model_type": "mistral", field: value})


def test_numbers_that_contradict_each_other_are_refused() -> None:
    assert "num_key_value_heads" in refusal(LLAMA, num_key_value_heads=4)
    assert "num_experts_per_tok" in refusal(MIXTRAL, num_experts_per_tok=9)
    assert "num_local_experts / num_experts" in refusal(MIXTRAL, num_experts=4)
    assert "mlp_only_layers" in refusal(QWEN3_MOE, mlp_only_layers=[-1])
    assert "mlp_only_layers" in refusal(QWEN3_MOE, mlp_only_layers=[True])
    assert "no_rope_layers" in refusal(
        {**PLAIN, "model_type": "smollm3"}, no_rope_layers=[1], use_sliding_window=True, sliding_window=8
    )
    assert "rmsnorm" in refusal(GLM4_9B, rmsnorm=False)


def test_what_changes_no_number_is_ignored() -> None:
    odd = {"rope_scaling": {"type": "unheard of"}, "hidden_act": 7, "final_logit_softcapping": "x", "": [], "π": {}}
    assert read(LLAMA, **odd).groups == read(LLAMA).groups
    assert "another" in notes(read(LLAMA, quantization_config={"quant_method": "another"}))["quantised"]
    assert "quantised (" in notes(read(LLAMA, quantization_config={}))["quantised"]


def test_reading_a_config_loads_neither_torch_nor_numpy() -> None:
    code = "import core.estimate.configs.huggingface, sys; print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
