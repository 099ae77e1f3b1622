"""The one list of the tensors a model is made of, by their Hugging Face names.

Loaders check files against it, random models are made from it, and the parameter count is its sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.model.config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def layer_prefix(layer: int) -> str:
    """What the names of one layer's tensors begin with."""
    return f"model.layers.{layer}."


def layer_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names (without the layer's prefix) and shapes [outputs, inputs] of one layer's tensors."""
    d_model, q_width, kv_width = config.d_model, config.attention_width, config.kv_width
    yield "input_layernorm.weight", (d_model,)
    yield "self_attn.q_proj.weight", (q_width, d_model)
    yield "self_attn.k_proj.weight", (kv_width, d_model)
    yield "self_attn.v_proj.weight", (kv_width, d_model)
    if config.qkv_bias:
        yield "self_attn.q_proj.bias", (q_width,)
        yield "self_attn.k_proj.bias", (kv_width,)
        yield "self_attn.v_proj.bias", (kv_width,)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)
    yield "self_attn.o_proj.weight", (d_model, q_width)
    yield "post_attention_layernorm.weight", (d_model,)
    yield "mlp.gate_proj.weight", (config.d_ff, d_model)
    yield "mlp.up_proj.weight", (config.d_ff, d_model)
    yield "mlp.down_proj.weight", (d_model, config.d_ff)


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every trained tensor of the model and its shape; a tied head is the input table and not listed twice."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, config.d_model)}
    for layer in range(config.n_layers):
        for name, shape in layer_shapes(config):
            shapes[layer_prefix(layer) + name] = shape
    shapes[FINAL_NORM] = (config.d_model,)
    if not config.tied_head:
        shapes[HEAD] = (config.vocab_size, config.d_model)
    return shapes
