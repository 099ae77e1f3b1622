"""A GGUF file's settings as a ModelConfig, and its names for the tensors that we name as Hugging Face does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core.model.config import ModelConfig, RopeConfig
from core.model.files.fields import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH, Fields, shown
from core.refusal import Refusal

ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_DIVISORS = "rope_freqs.weight"

_OUTSIDE_LAYERS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# Settings of the architecture that are read here or change nothing. Any other one is refused; outside the rotary
# settings, where 0 may be a factor, it may say 0 or no.
_READ = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.finetuned",
    "attention.causal",
    "vocab_size",
    "tensor_data_layout",
}
_MOST_FACTOR = 1e6


def gguf_tensor_name(name: str) -> str:
    """llama.cpp's name of a tensor: `model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    if name in _OUTSIDE_LAYERS:
        return _OUTSIDE_LAYERS[name]
    layer, _, inside = name.removeprefix("model.layers.").partition(".")
    part, _, kind = inside.rpartition(".")
    return f"blk.{layer}.{_IN_LAYER[part]}.{kind}"


def config_from_gguf(
    settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], *, name: str, file: str
) -> ModelConfig:
    """The model that a GGUF header describes, without the divisors of `rope_freqs.weight`, which are a tensor.

    Args:
        settings: the header's settings by key.
        shapes: the shapes of the file's tensors, outermost first. The size of the vocabulary is that of the table, a
            head is tied where there is none, and biases and the two query and key norms are where the tensors are.
        name: the model's name for people.
        file: the file's name, for refusals.

    Raises:
        Refusal: another architecture, a missing or absurd setting, or an option that we do not compute.
    """
    architecture = Fields(settings, file).text("general.architecture")
    if architecture is None:
        raise Refusal("model.field_missing", field="general.architecture", file=file)
    if architecture not in ARCHITECTURES:
        raise Refusal("model.architecture_unknown", architecture=shown(architecture), file=file)
    if settings.get("split.count", 1) not in (0, 1):
        raise Refusal("model.gguf_split", file=file)
    prefix = architecture + "."
    own = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    fields = Fields(own, file)
    _refuse_unknown(fields)
    table = shapes.get("token_embd.weight")
    if table is None or len(table) != 2:
        raise Refusal("model.tensor_missing", tensor="token_embd.weight", file=file)
    d_model = fields.whole("embedding_length", at_most=MOST_WIDTH)
    n_heads = _same_in_all_layers(fields, "attention.head_count", None)
    head_dim = _head_dim(fields, d_model, n_heads)
    context_limit = fields.whole("context_length", at_most=MOST_POSITIONS)
    return ModelConfig(
        name=name,
        architecture=architecture,
        n_layers=fields.whole("block_count", at_most=MOST_LAYERS),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_same_in_all_layers(fields, "attention.head_count_kv", n_heads),
        head_dim=head_dim,
        d_ff=_same_in_all_layers(fields, "feed_forward_length", None),
        vocab_size=table[0],
        context_limit=context_limit,
        norm_eps=_shortest(
            fields.number("attention.layer_norm_rms_epsilon", at_least=0.0, open_below=True, at_most=1.0)
        ),
        rope=_rope(fields, context_limit),
        tied_head="output.weight" not in shapes,
        qkv_bias=architecture == "qwen2" or "blk.0.attn_q.bias" in shapes,
        qk_norm=architecture == "qwen3",
    )


def _refuse_unknown(fields: Fields) -> None:
    for key, value in fields.values.items():
        at_rest = value in (0, "", []) and not key.startswith("rope.")  # False is 0
        if key not in _READ and not at_rest:
            fields.refuse(key)
    if not fields.flag("attention.causal", default=True):
        fields.refuse("attention.causal")


def _same_in_all_layers(fields: Fields, key: str, default: int | None) -> int:
    """A number, or a list of it per layer as long as the layers agree."""
    value = fields.get(key)
    if isinstance(value, list):
        if not value or any(entry != value[0] for entry in value):
            fields.refuse(key)
        fields = Fields({key: value[0]}, fields.file)
    return fields.whole(key, at_most=MOST_WIDTH, default=default)


def _head_dim(fields: Fields, d_model: int, n_heads: int) -> int:
    """The length of a key, which must be that of a value and of what is rotated; d_model / n_heads where not stated."""
    stated = [key for key in ("attention.key_length", "attention.value_length") if key in fields]
    if not stated and d_model % n_heads:
        raise Refusal("model.head_dim_not_whole", d_model=d_model, n_heads=n_heads)
    usual = max(1, d_model // n_heads)
    head_dim = fields.whole("attention.key_length", at_most=MOST_WIDTH, default=usual)
    for key, default in (("attention.value_length", usual), ("rope.dimension_count", head_dim)):
        if fields.whole(key, at_most=MOST_WIDTH, default=default) != head_dim:
            fields.refuse(key)
    return head_dim


def _rope(fields: Fields, context_limit: int) -> RopeConfig:
    """llama.cpp's reading: a factor without a type stretches linearly, and a factor of 0 is none."""
    theta = _shortest(fields.number("rope.freq_base", at_least=1.0, open_below=True, at_most=1e15, default=10_000.0))
    legacy = fields.number("rope.scale_linear", at_least=0.0, at_most=_MOST_FACTOR, default=0.0)
    factor = fields.number("rope.scaling.factor", at_least=0.0, at_most=_MOST_FACTOR, default=legacy)
    kind = fields.text("rope.scaling.type") or "linear"
    if kind not in ("none", "linear", "yarn"):
        raise Refusal("model.rope_unsupported", kind=shown(kind), file=fields.file)
    if kind == "none" or factor in (0.0, 1.0):
        return RopeConfig(theta=theta)
    if factor < 1.0:
        fields.refuse("rope.scaling.factor")
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=factor)
    slow = fields.number(
        "rope.scaling.yarn_beta_slow", at_least=0.0, open_below=True, at_most=_MOST_FACTOR, default=1.0
    )
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_context=fields.whole(
            "rope.scaling.original_context_length", at_most=MOST_POSITIONS, default=context_limit
        ),
        beta_slow=slow,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", at_least=slow, at_most=_MOST_FACTOR, default=32.0),
    )


def _shortest(value: float) -> float:
    """The shortest decimal that is this float32: 1e-05 for what 64 bits write as 9.999999747378752e-06."""
    return float(str(np.float32(value)))
