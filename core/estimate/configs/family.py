"""What can be peculiar to a family of models: how its config.json spells things, what its class builds unasked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.estimate.shape import QkNorm

# Whether a part is there: always or never, or when one of these flags of the file is set.
Switch = bool | tuple[str, ...]

# Which layers have a window where `layer_types` does not say: none; all; behind a flag those from max_window_layers
# on, or every second one below it, or all, or those without rotary positions; all but every n-th.
WindowRule = Literal["none", "all", "from_layer", "every_second", "all_if_on", "without_rope", "pattern"]
# Which layers have experts: none; all; those behind the first dense ones; every n-th but for a list.
ExpertRule = Literal["none", "all", "behind_dense", "every_nth"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family.

    Attributes:
        architectures: names of its classes with an output head.
        spelled: our name of a setting (transformers' usual one) → the names under which a file may state it.
        defaults: what the class takes where a file leaves a setting out; a null does not count as left out.
        allowed: settings that would change what is counted, and the values at which they do not.
        qk_norm_if: flag that switches `qk_norm` on, "" where it always is.
        kv_heads_if: flag without which there are as many KV heads as query heads, "" where there is none.
        norms: norms of d_model numbers a layer.
        norms_have_bias: norms hold a bias beside the weight.
        window_pattern: the n of the rule "pattern"; `reads_pattern` where `sliding_window_pattern` may change it.
        expert_width: setting with the feed-forward width of one expert.
        shared: how the shared experts are stated: their number, or their width, which comes with a gate.
        is_latent: attention is multi-head latent attention.
        has_positions: positions are a learned table.
        is_tied_by_either: the head is tied as soon as one level says so, the text part or the one around it.
    """

    architectures: tuple[str, ...]
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    allowed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    qkv_bias: Switch = False
    output_bias: Switch = False
    ffn_bias: Switch = False
    qk_norm: QkNorm = "none"
    qk_norm_if: str = ""
    kv_heads_if: str = ""
    has_sinks: bool = False
    is_gated: bool = True
    norms: int = 2
    norms_have_bias: bool = False
    window: WindowRule = "none"
    window_pattern: int = 0
    reads_pattern: bool = False
    experts: ExpertRule = "none"
    expert_width: str = "intermediate_size"
    shared: Literal["none", "count", "width"] = "none"
    has_router_bias: bool = False
    experts_have_bias: bool = False
    is_latent: bool = False
    has_positions: bool = False
    is_tied_by_either: bool = False


# The flag under which most families state biases, and defaults that several share.
ATTENTION_BIAS = ("attention_bias",)
WIDTH_128: Mapping[str, Any] = {"head_dim": 128}
