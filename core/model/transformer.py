"""The model: a decoder-only transformer whose whole forward pass is on this page.

RMSNorm, rotary positions, grouped-query attention, SwiGLU. What a model learned lives here, read-only and shared by all
visitors; what a run knows (its `KVCache`) is handed down by the caller. On a CPU activations are fp32 whatever the
weights' dtype, so that only weights and cache are rounded; on a GPU they have the weights' dtype.

Letters in the shape comments: B sequences, n_new new positions each, R = B·n_new rows, n positions in all, d hidden
width, h query heads, n_kv KV heads, d_h head width, g = h / n_kv.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from core.model import parameters
from core.model.attention import attend_within
from core.model.cached_attention import CachedAttention
from core.model.config import ModelConfig
from core.model.kv_cache import KVCache
from core.model.products import PlainProduct, Product, pack, use_threads
from core.model.rotary import inverse_frequencies

CPU = torch.device("cpu")


class Probe(Protocol):
    """What a recorder sees while a pass runs; it belongs to the pass, never to the model."""

    def saw(self, layer: int, queries: Tensor, keys_values: Tensor) -> None:
        """One layer's rotated queries [B, n_new, h, d_h], and rotated keys, then values [B, n_new, 2·n_kv, d_h]."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's learned tensors, products in the layout that is fastest here."""

    attention_norm: Tensor  # (d)
    qkv: Product  # (h·d_h + 2·n_kv·d_h, d): queries, keys, values in one product
    qk_norm: Tensor | None  # (h + n_kv, d_h)
    attention_out: Product  # (d, h·d_h)
    mlp_norm: Tensor  # (d)
    gate_up: Product  # (2·d_ff, d)
    down: Product  # (d, d_ff)


class Transformer:
    """Weights and forward pass of one model.

    `read(name)` returns a parameter by its Hugging Face name (`core.model.parameters`); it is called once a tensor,
    layer by layer, so that loading never holds a second copy of the model. With `packed=False` every product is
    plain: differentiable and countable.
    """

    def __init__(
        self,
        config: ModelConfig,
        read: Callable[[str], Tensor],
        *,
        device: torch.device = CPU,
        dtype: torch.dtype = torch.float32,
        packed: bool = True,
    ) -> None:
        self.config, self.device, self.dtype = config, device, dtype
        self._packed = packed
        self.activation_dtype = torch.float32 if device.type == "cpu" else dtype

        def product(weight: Tensor, bias: Tensor | None = None) -> Product:
            make = pack if packed else PlainProduct
            return make(weight.to(device), None if bias is None else bias.to(device), dtype)

        def norm(name: str) -> Tensor:
            weight = read(name).to(device, torch.float32)
            return weight * math.sqrt(weight.numel())  # see _norm

        self._inverse_frequencies, self._rotary_factor = inverse_frequencies(
            config.rope, config.head_dim, config.context_limit
        )
        self._inverse_frequencies = self._inverse_frequencies.to(device)
        self._norm_floor = {
            width: torch.tensor(math.sqrt(width * config.norm_eps), device=device)
            for width in (config.d_model, config.head_dim)
        }
        table = read(parameters.EMBEDDING)
        self.embedding = table.to(device, dtype)  # (vocab, d)
        self.head = product(table if config.tied_head else read(parameters.HEAD))
        del table  # before the layers are read: loading should not hold more than it must
        self.layers = tuple(self._read_layer(layer, read, norm, product) for layer in range(config.n_layers))
        self.final_norm = norm(parameters.FINAL_NORM)

    def _read_layer(
        self,
        layer: int,
        read: Callable[[str], Tensor],
        norm: Callable[[str], Tensor],
        product: Callable[..., Product],
    ) -> Layer:
        config, prefix = self.config, parameters.layer_prefix(layer)

        def joined(*names: str) -> Tensor:
            return torch.cat([read(prefix + name) for name in names])

        qkv = joined("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
        bias = None
        if config.qkv_bias:
            bias = joined("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias")
        qk_norm = None
        if config.qk_norm:
            q_norm = norm(prefix + "self_attn.q_norm.weight")
            k_norm = norm(prefix + "self_attn.k_norm.weight")
            qk_norm = torch.cat([q_norm.expand(config.n_heads, -1), k_norm.expand(config.n_kv_heads, -1)])
        return Layer(
            attention_norm=norm(prefix + "input_layernorm.weight"),
            qkv=product(qkv, bias),
            qk_norm=qk_norm,
            attention_out=product(read(prefix + "self_attn.o_proj.weight")),
            mlp_norm=norm(prefix + "post_attention_layernorm.weight"),
            gate_up=product(joined("mlp.gate_proj.weight", "mlp.up_proj.weight")),
            down=product(read(prefix + "mlp.down_proj.weight")),
        )

    def hidden(self, ids: Tensor, caches: Sequence[KVCache] | None = None, probe: Probe | None = None) -> Tensor:
        """Runs new positions through all layers.

        `ids` [B, n_new]; with `caches` (one a sequence) the positions follow what each cache holds, their keys and
        values are added to it, and they attend to all of it; without, the rows are whole sequences and nothing is
        kept. Returns the residual stream [B, n_new, d] after the last layer.
        """
        batch, n_new = ids.shape
        self._use_threads(batch * n_new)
        starts = [0] * batch if caches is None else [cache.n_tokens for cache in caches]
        for cache in caches or ():
            cache.reserve(n_new)
        cached = None if caches is None else CachedAttention(caches, n_new, self.activation_dtype, padded=self._packed)
        cos, sin = self._rotations(starts, n_new)
        x = self.embedding[ids.flatten()].to(self.activation_dtype)  # (B, n_new) → (R, d)
        for index, layer in enumerate(self.layers):
            queries, keys_values = self._queries_keys_values(layer, x, cos, sin)
            if probe is not None:
                probe.saw(index, *(heads.unflatten(0, (batch, n_new)) for heads in (queries, keys_values)))
            if cached is None:
                attended = attend_within(
                    queries.unflatten(0, (batch, n_new)), keys_values.unflatten(0, (batch, n_new))
                ).flatten(0, 1)
            else:
                attended = cached.attend(index, queries, keys_values)
            x = x + layer.attention_out(attended.flatten(1))  # (R, h, d_h) → (R, d)
            x = x + self._mlp(layer, x)
        for cache in caches or ():
            cache.commit(n_new)
        return x.view(batch, n_new, -1)  # (R, d) → (B, n_new, d)

    def logits(self, hidden: Tensor) -> Tensor:
        """The head: [..., d] → fp32 logits [..., vocab]."""
        self._use_threads(hidden.numel() // hidden.shape[-1])
        return self.head(self._norm(hidden, self.final_norm)).float()

    @property
    def product_bytes(self) -> int:
        """Bytes of every matrix a position multiplies with, the head included: what one pass must read of weights."""
        in_layers = (p.n_bytes for x in self.layers for p in (x.qkv, x.attention_out, x.gate_up, x.down))
        return sum(in_layers) + self.head.n_bytes

    def new_cache(self) -> KVCache:
        """An empty cache in the model's dtype, for one run."""
        return KVCache(self.config, dtype=self.dtype, device=self.device)

    def _use_threads(self, n_rows: int) -> None:
        if self.device.type == "cpu":
            use_threads(self.dtype, n_rows)

    def _rotations(self, starts: Sequence[int], n_new: int) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine [R, 1, 2, d_h/2] of each new position's angles, in fp32."""
        offsets = torch.arange(n_new, device=self.device)
        positions = (torch.tensor(starts, device=self.device)[:, None] + offsets).flatten()  # (B, n_new) → (R)
        angles = positions[:, None] * self._inverse_frequencies  # (R, d_h/2)
        cos, sin = angles.cos() * self._rotary_factor, angles.sin() * self._rotary_factor
        return torch.stack([cos, cos], 1).unsqueeze(1), torch.stack([-sin, sin], 1).unsqueeze(1)

    def _queries_keys_values(self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated queries [R, h, d_h], and rotated keys before plain values [R, 2·n_kv, d_h]."""
        h, n_kv, d_h = self.config.n_heads, self.config.n_kv_heads, self.config.head_dim
        qkv = layer.qkv(self._norm(x, layer.attention_norm))  # (R, (h + 2·n_kv)·d_h)
        heads = qkv.view(-1, h + 2 * n_kv, d_h)
        if layer.qk_norm is not None:
            turning = heads.narrow(1, 0, h + n_kv)
            turning.copy_(self._norm(turning, layer.qk_norm))
        # Queries and keys turn in place, values stay. Element i turns together with element i + d_h/2.
        halves = qkv.view(-1, h + 2 * n_kv, 2, d_h // 2).narrow(1, 0, h + n_kv)
        partners = halves.flip(2)
        halves.mul_(cos).addcmul_(partners, sin)
        return heads.narrow(1, 0, h), heads.narrow(1, h, 2 * n_kv)

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        gate_up = layer.gate_up(self._norm(x, layer.mlp_norm))  # (R, 2·d_ff)
        gate, up = gate_up.split_with_sizes((self.config.d_ff, self.config.d_ff), -1)
        return layer.down(F.silu(gate) * up)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last axis, in fp32: x / √(mean(x²) + ε) · weight.

        √d·√(mean(x²) + ε) is hypot(‖x‖, √(d·ε)), and `weight` already carries the √d: four small operators where
        `F.rms_norm` takes twice the time for one row on a CPU, 61 times a step in SmolLM2.
        """
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / torch.hypot(length, self._norm_floor[x.shape[-1]]) * weight).to(x.dtype)
