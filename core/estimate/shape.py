"""What the estimates know of a model: its shape, layers grouped by kind. Wider than what runs here: any decoder.

`ModelShape` is made by `core.estimate.configs.huggingface.from_hf`, by the catalogue, or from a model that runs here
(`shape_of`). Every number is a whole number of things (layers, heads, numbers a row), never of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal

from core.model.config import ModelConfig
from core.words import sentence

QkNorm = Literal["none", "head", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention: every position leaves n_kv keys and n_kv values.

    Attributes:
        head_dim: width of a query and of a key.
        value_dim: width of a value; that of a key unless stated.
        window: how many positions a query sees, its own included; None sees all.
        qk_norm: "head" has one weight of head_dim for all query heads and one for all key heads; "full" has weights
            over the whole width of the queries, and of the keys.
        has_sinks: one trained number a query head that takes part in the softmax (gpt_oss).
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int = 0
    window: int | None = None
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    qk_norm: QkNorm = "none"
    has_sinks: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value_dim", self.value_dim or self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA, DeepSeek-V2 report): a position leaves one latent and one rotary key in all.

    Attributes:
        query_rank: width of the queries' own latent; None where queries are projected directly.
        kv_rank: width of the latent that keys and values are expanded from; it is what is cached.
        nope_dim, rope_dim: width of the part of a query or key without and with rotary positions.
        value_dim: width of a value head.
    """

    n_heads: int
    query_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def window(self) -> None:
        """Latent attention sees all positions."""
        return None

    @property
    def expanded(self) -> Attention:
        """The same attention with its keys and values written out per head, as prefill computes it."""
        return Attention(
            n_heads=self.n_heads,
            n_kv_heads=self.n_heads,
            head_dim=self.nope_dim + self.rope_dim,
            value_dim=self.value_dim,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense feed-forward part: gate, up and down, or without a gate up and down only."""

    d_ff: int
    is_gated: bool = True
    has_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: a router chooses n_active of n_experts for each token; shared experts always run.

    Attributes:
        d_expert: feed-forward width of one routed expert.
        d_shared: feed-forward width of all shared experts together, 0 without.
        has_router_bias: one trained number an expert at the router.
        has_shared_gate: a projection to one number that scales the shared experts (qwen2_moe).
    """

    n_experts: int
    n_active: int
    d_expert: int
    is_gated: bool = True
    d_shared: int = 0
    has_bias: bool = False
    has_router_bias: bool = False
    has_shared_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that are alike. `norm_width` is how many numbers the norms of one layer hold, those of q and k not
    included. A layer may have no attention of this kind (and then caches nothing), or no feed-forward part."""

    n_layers: int
    attention: Attention | LatentAttention | None
    feed_forward: FeedForward | Experts | None
    norm_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that a reader of the figures should know: a key of the word catalogue and what fills it."""

    key: str
    values: tuple[tuple[str, object], ...] = ()

    def sentence(self, language: str = "en") -> str:
        """The note in a language."""
        return sentence(self.key, language, **dict(self.values))


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer as the estimates see it.

    Attributes:
        groups: the layers by kind, each kind once, in the order of their first layer.
        context_limit: positions the model was made for, 0 where nothing says so.
        n_positions: rows of a table of learned positions (gpt2), 0 without.
        final_norm_width: how many numbers the last norm holds.
        notes: what was assumed where the description was silent.
    """

    name: str
    architecture: str
    d_model: int
    vocab_size: int
    context_limit: int
    groups: tuple[LayerGroup, ...]
    tied_head: bool = False
    has_head_bias: bool = False
    n_positions: int = 0
    final_norm_width: int
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.architecture, self.d_model, self.vocab_size, self.groups, self.tied_head))

    def __hash__(self) -> int:
        return self._hash  # reckoned once: every figure is looked up by its shape

    @property
    def n_layers(self) -> int:
        """L: all layers."""
        return sum(group.n_layers for group in self.groups)

    @property
    def has_experts(self) -> bool:
        """Whether any layer chooses among experts."""
        return any(isinstance(group.feed_forward, Experts) for group in self.groups)

    @property
    def has_latents(self) -> bool:
        """Whether positions leave latents instead of keys and values."""
        return any(isinstance(group.attention, LatentAttention) for group in self.groups)

    @cached_property
    def with_expanded_latents(self) -> ModelShape:
        """The same model caching keys and values per head, as an engine without latent caches keeps them."""
        groups = tuple(
            replace(group, attention=group.attention.expanded)
            if isinstance(group.attention, LatentAttention)
            else group
            for group in self.groups
        )
        return replace(self, groups=groups)


@lru_cache(maxsize=256)
def shape_of(config: ModelConfig) -> ModelShape:
    """The shape of a model that runs here: one kind of layer, two norms a layer and one at the end."""
    attention = Attention(
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        has_qkv_bias=config.qkv_bias,
        qk_norm="head" if config.qk_norm else "none",
    )
    layers = LayerGroup(
        n_layers=config.n_layers,
        attention=attention,
        feed_forward=FeedForward(d_ff=config.d_ff),
        norm_width=2 * config.d_model,
    )
    return ModelShape(
        name=config.name,
        architecture=config.architecture,
        d_model=config.d_model,
        vocab_size=config.vocab_size,
        context_limit=config.context_limit,
        groups=(layers,),
        tied_head=config.tied_head,
        final_norm_width=config.d_model,
    )


def grouped(layers: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Single layers, in order, gathered by kind: each kind once, with how many there are."""
    counts: dict[LayerGroup, int] = {}
    for layer in layers:
        alike = replace(layer, n_layers=1)
        counts[alike] = counts.get(alike, 0) + layer.n_layers
    return tuple(replace(alike, n_layers=n) for alike, n in counts.items())
