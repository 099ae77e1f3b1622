"""A Hugging Face config.json as a ModelConfig: what we compute is read, what we do not compute is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.config import ModelConfig
from core.model.files.fields import MOST_LAYERS, MOST_POSITIONS, MOST_TOKENS, MOST_WIDTH, Fields, shown
from core.model.files.huggingface_fields import class_names, head_dim, unnested
from core.model.files.rope_huggingface import rope_from_huggingface
from core.refusal import Refusal

# model_type and the class of the same network with its output head.
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# Settings that would change the computation, and the values (besides null) at which they do not.
_OFF: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "quantization_config": (),
    "pretraining_tp": (0, 1),
    "mlp_bias": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "is_causal": (True,),
    "use_bidirectional_attention": (False,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "n_routed_experts": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "clip_qkv": (),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "attention_multiplier": (),
    "attention_chunk_size": (),
    "no_rope_layers": ([],),
    "rope_interleaved": (False,),
    "auto_map": (),  # the network is a program beside the weights, whatever its name says
    "vision_config": (),
    "audio_config": (),
}


def config_from_huggingface(values: Mapping[str, Any], *, name: str, file: str = "config.json") -> ModelConfig:
    """The model that a parsed config.json describes; `name` is what it is to be called.

    Args:
        values: the object in the file.
        name: the model's name for people.
        file: the file's name, for refusals.

    Raises:
        Refusal: another architecture, a missing or absurd setting, or an option that we do not compute.
    """
    architecture = _architecture(Fields(values, file))
    merged, differing = unnested(values, file)
    for setting in sorted(differing):
        raise Refusal("model.field_contradicts", field=f"text_config.{shown(setting)}", file=file)
    fields = Fields(merged, file)
    for option, off in _OFF.items():
        if option in fields and fields.get(option) not in off:
            fields.refuse(option)
    # llama and qwen3 would add a bias to the output too, which we do not have; qwen2 always has its own q, k, v biases.
    if architecture != "qwen2" and fields.flag("attention_bias"):
        fields.refuse("attention_bias")
    n_layers = fields.whole("num_hidden_layers", at_most=MOST_LAYERS)
    _refuse_sliding_windows(fields, architecture, n_layers)
    d_model = fields.whole("hidden_size", at_most=MOST_WIDTH)
    n_heads = fields.whole("num_attention_heads", at_most=MOST_WIDTH)
    context_limit = fields.whole("max_position_embeddings", at_most=MOST_POSITIONS)
    return ModelConfig(
        name=name,
        architecture=architecture,
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.whole("num_key_value_heads", at_most=MOST_WIDTH, default=n_heads),
        head_dim=head_dim(fields, d_model, n_heads),
        d_ff=fields.whole("intermediate_size", at_most=MOST_WIDTH),
        vocab_size=fields.whole("vocab_size", at_most=MOST_TOKENS),
        context_limit=context_limit,
        norm_eps=fields.number("rms_norm_eps", at_least=0.0, open_below=True, at_most=1.0, default=1e-6),
        rope=rope_from_huggingface(fields, context_limit),
        tied_head=fields.flag("tie_word_embeddings"),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
    )


def _architecture(fields: Fields) -> str:
    """`model_type`, held against `architectures`; either may be absent, not both."""
    stated = fields.text("model_type")
    classes = class_names(fields)
    if classes is None:
        value = shown(fields.get("architectures"))
        raise Refusal("model.architecture_unknown", architecture=value, file=fields.file)
    if stated is not None and stated not in ARCHITECTURES:
        raise Refusal("model.architecture_unknown", architecture=shown(stated), file=fields.file)
    if stated is None and not classes:
        raise Refusal("model.field_missing", field="model_type", file=fields.file)
    for model_type, network in ARCHITECTURES.items():
        if stated in (None, model_type) and (not classes or network in classes):
            return model_type
    raise Refusal("model.architecture_unknown", architecture=shown(", ".join(classes)), file=fields.file)


def _refuse_sliding_windows(fields: Fields, architecture: str, n_layers: int) -> None:
    """A window number alone switches nothing on in the qwen families: a flag does, from a certain layer on.

    llama has no such flag, so a number there is taken as on.
    """
    kinds = fields.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
            raise Refusal("model.window_unsupported", field="layer_types", file=fields.file)
        return
    on = fields.flag("use_sliding_window", default=architecture == "llama")
    first_sliding = 0 if architecture == "llama" else 28  # transformers' default for the qwen families
    first_sliding = fields.whole("max_window_layers", at_least=0, at_most=MOST_POSITIONS, default=first_sliding)
    if "sliding_window" in fields and on and first_sliding < n_layers:
        raise Refusal("model.window_unsupported", field="sliding_window", file=fields.file)
