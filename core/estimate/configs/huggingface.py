"""A Hugging Face config.json as a ModelShape: every number that transformers would build from it, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.estimate.configs.config_fields import ConfigFields, note
from core.estimate.configs.config_layers import experts_in, windows
from core.estimate.shape import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    LayerGroup,
    ModelShape,
    Note,
    grouped,
)
from core.model.files.fields import MOST_LAYERS, MOST_POSITIONS, MOST_TOKENS, MOST_WIDTH, shown
from core.model.files.huggingface_fields import head_dim
from core.refusal import Refusal


def from_hf(values: Mapping[str, Any], *, name: str, file: str = "config.json") -> ModelShape:
    """The shape of the model that a parsed config.json describes; of a multimodal model, of its text part.

    Args:
        values: the object in the file.
        name: what the model is to be called.
        file: the file's name, for refusals and notes.

    Raises:
        Refusal: a model_type that is not known here, or a setting that is missing, absurd or contradicts another.
    """
    config = ConfigFields(values, file)
    family = config.family
    _refuse_other_kinds(config)
    n_layers = config.whole("num_hidden_layers", at_most=MOST_LAYERS)
    d_model = config.whole("hidden_size", at_most=MOST_WIDTH)
    n_heads = config.whole("num_attention_heads", at_most=MOST_WIDTH)
    vocab_size = config.whole("vocab_size", at_most=MOST_TOKENS)
    notes: list[Note] = []
    attentions: list[Attention | LatentAttention]
    window_of, window_notes = windows(config, n_layers)
    if family.is_latent:
        latent = _latent_attention(config, n_heads)
        attentions = [latent] * n_layers
        notes.append(note("estimate.note_latent", kv_rank=latent.kv_rank, rope_dim=latent.rope_dim, n_heads=n_heads))
    else:
        width, width_notes = _head_dim(config, d_model, n_heads)
        n_kv_heads = _n_kv_heads(config, n_heads)
        attentions = [_attention(config, n_heads, n_kv_heads, width, window) for window in window_of]
        notes += [*width_notes, *window_notes]
    norm_width = d_model * (2 if family.norms_have_bias else 1)
    layers = [
        LayerGroup(n_layers=1, attention=attention, feed_forward=part, norm_width=family.norms * norm_width)
        for attention, part in zip(attentions, _feed_forwards(config, n_layers, d_model), strict=True)
    ]
    context_limit = _context_limit(config)
    return ModelShape(
        name=name,
        architecture=config.model_type,
        d_model=d_model,
        vocab_size=vocab_size,
        context_limit=context_limit,
        groups=grouped(layers),
        tied_head=config.is_tied(),
        n_positions=context_limit if family.has_positions else 0,
        final_norm_width=norm_width,
        notes=(*notes, *_other_notes(config)),
    )


def _refuse_other_kinds(config: ConfigFields) -> None:
    """Refuse what is no decoder alone, and settings with which the family would be counted differently."""
    allowed = {"is_encoder_decoder": (False,), "add_cross_attention": (False,), **config.family.allowed}
    for name, values in allowed.items():
        if name in config.fields and config.fields.get(name) not in values:
            config.fields.refuse(name)


def _context_limit(config: ConfigFields) -> int:
    """The positions the model was made for, 0 where nothing says so; a table of positions must have its rows."""
    if config.family.has_positions:
        return config.whole("max_position_embeddings", at_most=MOST_POSITIONS)
    return config.whole_or_none("max_position_embeddings", at_most=MOST_POSITIONS) or 0


def _head_dim(config: ConfigFields, d_model: int, n_heads: int) -> tuple[int, list[Note]]:
    """What is stated; else the class's own width; else d_model / n_heads, which is said."""
    stated = config.whole_or_none("head_dim", at_most=MOST_WIDTH)
    if stated is not None:
        return stated, []
    width = head_dim(config.fields, d_model, n_heads, config.name("head_dim"))
    return width, [note("estimate.note_head_dim", d_model=d_model, n_heads=n_heads, head_dim=width)]


def _n_kv_heads(config: ConfigFields, n_heads: int) -> int:
    """num_key_value_heads: how many KV heads there are, never how many queries share one."""
    switch = config.family.kv_heads_if
    if switch and not config.flag(switch):
        return n_heads
    stated = config.whole_or_none("num_key_value_heads", at_most=MOST_WIDTH)
    n_kv_heads = n_heads if stated is None else stated
    if n_heads % n_kv_heads:
        if config.is_left_out("num_key_value_heads"):
            raise Refusal("model.field_missing", field=config.name("num_key_value_heads"), file=config.file)
        raise Refusal(
            "estimate.heads_not_divisible",
            field=config.name("num_key_value_heads"),
            n_kv_heads=n_kv_heads,
            n_heads=n_heads,
            file=config.file,
        )
    return n_kv_heads


def _attention(config: ConfigFields, n_heads: int, n_kv_heads: int, width: int, window: int | None) -> Attention:
    family = config.family
    has_qk_norm = not family.qk_norm_if or config.flag(family.qk_norm_if)
    return Attention(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=width,
        window=window,
        has_qkv_bias=config.switch(family.qkv_bias),
        has_output_bias=config.switch(family.output_bias),
        qk_norm=family.qk_norm if has_qk_norm else "none",
        has_sinks=family.has_sinks,
    )


def _latent_attention(config: ConfigFields, n_heads: int) -> LatentAttention:
    """num_key_value_heads and head_dim are in such files too, and mean nothing there."""
    return LatentAttention(
        n_heads=n_heads,
        query_rank=config.whole_or_none("q_lora_rank", at_most=MOST_WIDTH),
        kv_rank=config.whole("kv_lora_rank", at_most=MOST_WIDTH),
        nope_dim=config.whole("qk_nope_head_dim", at_most=MOST_WIDTH),
        rope_dim=config.whole("qk_rope_head_dim", at_most=MOST_WIDTH),
        value_dim=config.whole("v_head_dim", at_most=MOST_WIDTH),
    )


def _feed_forwards(config: ConfigFields, n_layers: int, d_model: int) -> list[FeedForward | Experts]:
    """The feed-forward part of each layer; the width of a kind that no layer has is not read."""
    has_experts = experts_in(config, n_layers)
    experts = _experts(config) if any(has_experts) else None
    dense = None if all(has_experts) else _dense(config, d_model)
    return [part for on in has_experts if (part := experts if on else dense) is not None]


def _dense(config: ConfigFields, d_model: int) -> FeedForward:
    family = config.family
    stated = config.whole_or_none("intermediate_size", at_most=MOST_WIDTH) if family.has_positions else None
    if stated is None:  # gpt2 alone may leave it open, and then takes four times the width
        stated = 4 * d_model if family.has_positions else config.whole("intermediate_size", at_most=MOST_WIDTH)
    return FeedForward(d_ff=stated, is_gated=family.is_gated, has_bias=config.switch(family.ffn_bias))


def _experts(config: ConfigFields) -> Experts:
    family = config.family
    n_experts = config.whole("num_experts", at_most=MOST_WIDTH)
    n_active = config.whole("num_experts_per_tok", at_most=MOST_WIDTH)
    if n_active > n_experts:
        raise Refusal(
            "estimate.more_active_than_experts",
            n_active=n_active,
            field=config.name("num_experts"),
            n_experts=n_experts,
            file=config.file,
        )
    d_expert = config.whole(family.expert_width, at_most=MOST_WIDTH)
    d_shared = 0
    if family.shared == "count":
        d_shared = d_expert * (config.whole_or_none("n_shared_experts", at_most=MOST_LAYERS, at_least=0) or 0)
    elif family.shared == "width":
        d_shared = config.whole("shared_expert_intermediate_size", at_most=MOST_WIDTH)
    return Experts(
        n_experts=n_experts,
        n_active=n_active,
        d_expert=d_expert,
        d_shared=d_shared,
        has_bias=family.experts_have_bias,
        has_router_bias=family.has_router_bias,
        has_shared_gate=family.shared == "width",
    )


def _other_notes(config: ConfigFields) -> list[Note]:
    """What was assumed, and what the figures leave out."""
    notes: list[Note] = []
    if config.assumed:
        listed = ", ".join(f"{name} = {value:,}" for name, value in config.assumed.items())
        notes.append(note("estimate.note_assumed", file=config.file, settings=listed))
    if "quantization_config" in config.fields:
        stated = config.fields.get("quantization_config")
        method = stated.get("quant_method", "quantization_config") if isinstance(stated, dict) else stated
        notes.append(note("estimate.note_quantised", method=shown(method)))
    further = "num_nextn_predict_layers"
    if config.name(further) in config.fields and config.whole(further, at_most=MOST_LAYERS, at_least=0):
        notes.append(note("estimate.note_further_tokens", field=config.name(further)))
    if config.is_text_part:
        notes.append(note("estimate.note_text_part"))
    return notes
