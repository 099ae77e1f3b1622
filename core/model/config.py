"""What a model is: the numbers that fix its shape, and nothing it learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from core.refusal import Refusal

RopeScalingKind = Literal["none", "linear", "llama3", "yarn", "divisors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary positions: the base and, where a model stretches its context, how.

    `divisors` (GGUF's `rope_freqs.weight`) holds head_dim/2 numbers that divide the frequencies one by one; the other
    scalings are stated by their published parameters (Hugging Face's `rope_scaling` names).
    """

    theta: float = 10_000.0
    scaling: RopeScalingKind = "none"
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    The small differences between the families are settings here, not code elsewhere: qwen2 has biases on q, k, v
    (`qkv_bias`), qwen3 normalises each query and key head (`qk_norm`), and head_dim stands on its own
    (it is not always d_model / n_heads).
    """

    name: str
    architecture: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab_size: int
    context_limit: int
    norm_eps: float = 1e-5
    rope: RopeConfig = field(default_factory=RopeConfig)
    tied_head: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "vocab_size", "context_limit"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise Refusal("model.not_a_positive_integer", field=name, value=repr(value)[:40])
        if self.n_heads % self.n_kv_heads:
            raise Refusal("model.heads_not_divisible", n_heads=self.n_heads, n_kv_heads=self.n_kv_heads)
        if self.head_dim % 2:
            raise Refusal("model.odd_head_dim", head_dim=self.head_dim)

    @property
    def attention_width(self) -> int:
        """h·d_h: the width of all queries together, which is d_model only for some models."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """n_kv·d_h: the width of one position's keys (or values) in one layer."""
        return self.n_kv_heads * self.head_dim

    @property
    def queries_per_kv_head(self) -> int:
        """How many query heads share one KV head; 1 is multi-head attention."""
        return self.n_heads // self.n_kv_heads
