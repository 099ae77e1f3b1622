"""config.json: what it says is read, what we do not compute is refused by name, nonsense never gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from core.model.config import RopeConfig
from core.model.files.config_huggingface import config_from_huggingface
from core.model.files.json_file import parse_json_object
from core.model.parameters import parameter_shapes
from core.refusal import Refusal

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
QWEN2 = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}


def read(values: dict[str, Any], **changes: Any) -> Any:
    return config_from_huggingface({**values, **changes}, name="m")


def refusal(values: dict[str, Any], **changes: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read(values, **changes)
    assert caught.value.sentence("zh") and "\n" not in caught.value.sentence("en")
    return caught.value


@pytest.mark.parametrize("config_class", [LlamaConfig, Qwen2Config, Qwen3Config])
def test_reads_what_transformers_writes(config_class: Any) -> None:
    written = config_class(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=3)
    config = config_from_huggingface(json.loads(written.to_json_string(use_diff=False)), name="m")
    assert (config.n_layers, config.d_model, config.n_heads, config.n_kv_heads) == (3, 48, 6, 3)
    assert config.head_dim == getattr(written, "head_dim", 8)
    assert config.context_limit == written.max_position_embeddings
    assert config.norm_eps == written.rms_norm_eps
    assert config.rope == RopeConfig(theta=10_000.0)
    assert config.qkv_bias == (config_class is Qwen2Config) and config.qk_norm == (config_class is Qwen3Config)


def test_defaults_where_config_is_silent() -> None:
    config = read(LLAMA, num_key_value_heads=None)
    assert config.n_kv_heads == 4 and config.head_dim == 8 and not config.tied_head


def test_stated_head_dim_stands_on_its_own() -> None:
    """known-faults A02, with its sizes."""
    config = read(
        LLAMA,
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        hidden_size=2560,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        num_hidden_layers=36,
        intermediate_size=9728,
        vocab_size=151936,
        tie_word_embeddings=True,
    )
    shapes = parameter_shapes(config)
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == (4096, 2560)
    assert sum(_size(shape) for shape in shapes.values()) == 4_022_468_096
    assert 2 * config.n_layers * config.kv_width * 2 == 147_456


def _size(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def test_absent_head_dim_must_be_whole() -> None:
    assert refusal(LLAMA, hidden_size=34).key == "model.head_dim_not_whole"


@pytest.mark.parametrize(
    "model_type", ["mistral", "gemma", "gpt2", "phi", "qwen2_moe", "mllama", "Llama", "", "llama\n<b>"]
)
def test_other_architectures_are_refused_by_name(model_type: str) -> None:
    refused = refusal(LLAMA, model_type=model_type)
    assert refused.key == "model.architecture_unknown" and model_type.split("\n")[0] in str(refused)


def test_architecture_from_either_place_but_not_against_the_other() -> None:
    assert read(LLAMA, model_type=None).architecture == "llama"
    assert read(LLAMA, architectures=None).architecture == "llama"
    assert refusal(LLAMA, architectures=["LlamaForSequenceClassification"]).key == "model.architecture_unknown"
    assert refusal(LLAMA, architectures=["Qwen2ForCausalLM"]).key == "model.architecture_unknown"
    assert refusal(LLAMA, architectures=[{}]).key == "model.architecture_unknown"
    assert refusal(LLAMA, model_type=None, architectures=None).key == "model.field_missing"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hidden_act", "gelu"),
        ("mlp_bias", True),
        ("attention_bias", True),
        ("pretraining_tp", 2),
        ("quantization_config", {"quant_method": "gptq"}),
        ("partial_rotary_factor", 0.5),
        ("num_local_experts", 8),
        ("vision_config", {"depth": 2}),
        ("auto_map", {"AutoModelForCausalLM": "modeling_x.X"}),
        ("final_logit_softcapping", 30.0),
    ],
)
def test_options_we_do_not_compute_are_refused_by_name(option: str, value: Any) -> None:
    assert option in str(refusal(LLAMA, **{option: value}))


def test_options_that_are_off_are_fine() -> None:
    off = {"hidden_act": "silu", "mlp_bias": False, "attention_bias": False, "pretraining_tp": 1}
    off |= {"quantization_config": None, "partial_rotary_factor": 1.0}
    assert read(LLAMA, **off) == read(LLAMA)
    assert read(QWEN2, attention_bias=True).qkv_bias


def test_a_window_that_is_switched_off_is_no_window() -> None:
    """known-faults A14: a number alone switches nothing on."""
    assert read(QWEN2, sliding_window=4096, use_sliding_window=False)
    assert read(QWEN2, sliding_window=4096)
    assert read(LLAMA, sliding_window=4096, use_sliding_window=False)
    assert read(QWEN2, sliding_window=4096, use_sliding_window=True, max_window_layers=4)
    assert read(QWEN2, sliding_window=None, use_sliding_window=True)
    assert read(QWEN2, layer_types=["full_attention"] * 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 2},
        {"sliding_window": 4096, "use_sliding_window": False, "layer_types": ["full_attention", "sliding_attention"]},
        {"model_type": "llama", "architectures": None, "sliding_window": 64},
    ],
)
def test_a_window_that_is_on_is_refused(changes: dict[str, Any]) -> None:
    assert refusal(QWEN2, **changes).key == "model.window_unsupported"


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


def test_rope_in_the_old_spelling_and_the_new() -> None:
    old = read(LLAMA, rope_theta=5e5, rope_scaling=LLAMA3).rope
    new = read(LLAMA, rope_parameters={**LLAMA3, "rope_theta": 5e5}).rope
    legacy_type = {("type" if key == "rope_type" else key): value for key, value in LLAMA3.items()}
    assert old == new == read(LLAMA, rope_theta=5e5, rope_scaling=legacy_type).rope
    assert old == RopeConfig(
        theta=5e5, scaling="llama3", factor=8.0, original_context=256, low_freq_factor=1.0, high_freq_factor=4.0
    )
    assert read(LLAMA, rope_scaling={"type": "linear", "factor": 2}).rope == RopeConfig(scaling="linear", factor=2.0)
    assert read(LLAMA, rope_scaling={}).rope == read(LLAMA, rope_scaling={"rope_type": "default"}).rope == RopeConfig()
    assert read(LLAMA, rope_scaling={"type": "yarn", "factor": 2.0}).rope.original_context == 512


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("inf")}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"factor": 2.0}}, "factor"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": None}}, "low_freq_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}, "truncate"),
        ({"rope_scaling": {"rope_type": "default", "mrope_section": [1, 2]}}, "mrope_section"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 2e4}}, "rope_theta"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"rope_scaling": "yarn"}, "yarn"),
    ],
)
def test_rope_we_do_not_compute_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    assert named in str(refusal(LLAMA, **changes))


def test_a_flag_in_text_config_counts() -> None:
    """known-faults B15 iii."""
    assert read(LLAMA, text_config={"tie_word_embeddings": True}).tied_head
    assert refusal(LLAMA, tie_word_embeddings=False, text_config={"tie_word_embeddings": True}).key == (
        "model.field_contradicts"
    )
    assert refusal(LLAMA, text_config={"num_hidden_layers": 8}).key == "model.field_contradicts"
    assert refusal(LLAMA, model_type="llava", text_config={"model_type": "llama"}).key == "model.architecture_unknown"


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"])
@pytest.mark.parametrize("value", [0, -1, 10**30, 1.5, True, "8", None, [1], {}])
def test_absurd_numbers_are_refused(field: str, value: Any) -> None:
    assert field in str(refusal(LLAMA, **{field: value}))


@pytest.mark.parametrize("changes", [{"num_key_value_heads": 3}, {"head_dim": 7}, {"rms_norm_eps": 0}])
def test_numbers_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    refusal(LLAMA, **changes)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "json_broken"),
        (b"[]", "json_broken"),
        (b"{", "json_broken"),
        (b"\xff\xfe{}", "json_broken"),
        (b'{"a": ' + b"1" * 5000 + b"}", "json_broken"),
        (b'{"a": NaN}', "json_not_a_number"),
        (b'{"a": {"b": -Infinity}}', "json_not_a_number"),
        (b'{"a": 1, "a": 2}', "json_key_twice"),
        (b'{"a":' * 100_000, "json_too_deep"),
        (b"[" * 100_000, "json_too_deep"),
    ],
)
def test_broken_json_is_refused(data: bytes, key: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_json_object(data, "config.json")
    assert caught.value.key == f"model.{key}" and "config.json" in str(caught.value)
