"""Common wrong formulas: what people and public calculators reckon instead, and by what factor that is off.

Each is a mistake seen in the wild, applied to the model at hand; where a mistake does not matter for a model (query
heads under multi-head attention, say), it is left out, so that what is listed is really wrong there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes
from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.kv import kv_bytes
from core.estimate.shape import Attention, Experts, LatentAttention, ModelShape
from core.estimate.weights import parameters, weight_bytes

Quantity = Literal["kv_bytes", "weight_bytes", "decode_flops", "prefill_flops"]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A mistake: its name (a key of words), what it is about, what it gives, what is right."""

    name: str
    quantity: Quantity
    value: float
    right: int

    @property
    def factor(self) -> float:
        """How many times too large it is; below 1 it is too small."""
        return self.value / self.right


def wrong_formulas(
    shape: ModelShape,
    *,
    n_tokens: int,
    batch: int = 1,
    weight_dtypes: WeightDtypes = BF16_WEIGHTS,
    kv_dtypes: KvDtypes = BF16_KV,
) -> tuple[Wrong, ...]:
    """The mistakes that would give another figure for this model at this context and batch."""
    kv = kv_bytes(shape, n_tokens=n_tokens, batch=batch, dtypes=kv_dtypes)
    mistakes = [
        *_of_the_cache(shape, n_tokens, batch, kv_dtypes, kv),
        *_of_weights(shape, weight_dtypes),
        *_of_compute(shape, n_tokens, batch),
    ]
    return tuple(wrong for wrong in mistakes if wrong.right and wrong.value != wrong.right)


def _of_the_cache(shape: ModelShape, n_tokens: int, batch: int, dtypes: KvDtypes, right: int) -> Iterator[Wrong]:
    def wrong(name: str, value: float) -> Wrong:
        return Wrong(name, "kv_bytes", value, right)

    def cache(changed: ModelShape, n: int = n_tokens) -> int:
        misread: int = kv_bytes(changed, n_tokens=n, batch=batch, dtypes=dtypes)
        return misread

    kinds = {group.attention for group in shape.groups if group.attention is not None}
    d, n_caching = shape.d_model, sum(group.n_layers for group in shape.groups if group.attention is not None)
    if any(isinstance(kind, LatentAttention) for kind in kinds):
        without_rope = cache(_changed(shape, _without_rope))
        yield wrong("latent_twice", 2 * without_rope)
        yield wrong("latent_without_rope", without_rope)
        yield wrong("latent_as_heads", cache(shape.with_expanded_latents))
    else:
        yield wrong("query_heads", cache(_changed(shape, _query_heads)))
        yield wrong("one_of_keys_and_values", right / 2)
    yield wrong("width_over_heads", cache(_changed(shape, lambda kind: _width_over_heads(kind, d))))
    yield wrong("hidden_width", cache(_changed(shape, lambda kind: _hidden_width(kind, d))))
    yield wrong("window_forgotten", cache(_changed(shape, _without_window)))
    yield wrong("layers_forgotten", right / max(1, n_caching))
    yield wrong("batch_forgotten", right / batch)
    unscaled = KvDtypes(dtypes.k.without_scales, dtypes.v.without_scales)
    yield wrong("scales_forgotten", kv_bytes(shape, n_tokens=n_tokens, batch=batch, dtypes=unscaled))
    yield wrong("k_of_other_size", cache(shape, _other_k(n_tokens)))
    yield wrong("gib_called_gb", right / 2**30 * 10**9)


def _of_weights(shape: ModelShape, dtypes: WeightDtypes) -> Iterator[Wrong]:
    right, counts = weight_bytes(shape, dtypes), parameters(shape)

    def wrong(name: str, value: float) -> Wrong:
        return Wrong(name, "weight_bytes", value, right)

    if shape.has_experts:
        yield wrong("active_for_total", counts.active * right / counts.total)
    if shape.tied_head:
        yield wrong("tied_head_twice", weight_bytes(replace(shape, tied_head=False), dtypes))
    if shape.has_experts:
        most = max(group.feed_forward.n_experts for group in shape.groups if isinstance(group.feed_forward, Experts))
        yield wrong("experts_times_model", most * weight_bytes(_with_one_expert(shape), dtypes))
    plain = WeightDtypes(
        dtypes.rest.without_scales, tuple((part, dtype.without_scales) for part, dtype in dtypes.parts)
    )
    yield wrong("scales_forgotten", weight_bytes(shape, plain))
    yield wrong("gib_called_gb", right / 2**30 * 10**9)


def _of_compute(shape: ModelShape, n_tokens: int, batch: int) -> Iterator[Wrong]:
    counts, decode = parameters(shape), decode_flops(shape, n_tokens, batch)
    causal = prefill_flops(shape, n_tokens, batch, causal=True)
    table = 2 * batch * counts.input_table
    yield Wrong("look_up_as_product", "decode_flops", decode + table, decode)
    if shape.tied_head:
        yield Wrong("tied_head_dropped", "decode_flops", decode - table, decode)
    yield Wrong("multiply_add_is_one", "decode_flops", decode / 2, decode)
    if shape.has_experts:
        unused = counts.total - counts.active - (0 if shape.tied_head else counts.input_table)
        yield Wrong("total_for_active", "decode_flops", decode + 2 * batch * unused, decode)
    yield Wrong("mask_forgotten", "prefill_flops", prefill_flops(shape, n_tokens, batch), causal)


def _changed(
    shape: ModelShape, change: Callable[[Attention | LatentAttention], Attention | LatentAttention]
) -> ModelShape:
    """The shape with its attention misread."""
    groups = tuple(
        group if group.attention is None else replace(group, attention=change(group.attention))
        for group in shape.groups
    )
    return replace(shape, groups=groups)


def _query_heads(kind: Attention | LatentAttention) -> Attention | LatentAttention:
    return replace(kind, n_kv_heads=kind.n_heads) if isinstance(kind, Attention) else kind


def _without_window(kind: Attention | LatentAttention) -> Attention | LatentAttention:
    return replace(kind, window=None) if isinstance(kind, Attention) else kind


def _without_rope(kind: Attention | LatentAttention) -> Attention | LatentAttention:
    return replace(kind, rope_dim=0) if isinstance(kind, LatentAttention) else kind


def _width_over_heads(kind: Attention | LatentAttention, d_model: int) -> Attention:
    """head_dim taken as d / h although the model states its own; a latent taken for heads of that width."""
    width = max(1, d_model // kind.n_heads)
    if isinstance(kind, LatentAttention):
        return Attention(n_heads=kind.n_heads, n_kv_heads=kind.n_heads, head_dim=width)
    return replace(kind, head_dim=width, value_dim=width)


def _hidden_width(kind: Attention | LatentAttention, d_model: int) -> Attention:
    """Keys and values taken to be as wide as the hidden state."""
    return Attention(n_heads=1, n_kv_heads=1, head_dim=d_model, window=kind.window)


def _with_one_expert(shape: ModelShape) -> ModelShape:
    """The model as if each layer had one expert: "8x7B" read as eight such models."""
    groups = tuple(
        replace(group, feed_forward=replace(group.feed_forward, n_experts=1, n_active=1))
        if isinstance(group.feed_forward, Experts)
        else group
        for group in shape.groups
    )
    return replace(shape, groups=groups)


def _other_k(n_tokens: int) -> int:
    """32K read as 32,000 where 32,768 is meant, or the other way round; lengths that are neither stay."""
    if n_tokens % 1024 == 0:
        return n_tokens // 1024 * 1000
    return n_tokens // 1000 * 1024 if n_tokens % 1000 == 0 else n_tokens
