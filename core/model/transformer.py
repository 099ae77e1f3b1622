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
from core.model.attention import AttentionWithin
from core.model.cached_attention import CachedAttention
from core.model.config import ModelConfig
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.products import PlainProduct, Product, pack, use_threads
from core.model.rotary import inverse_frequencies

CPU = torch.device("cpu")
Rotations = tuple[Tensor, Tensor]
"""Cosine and signed sine of a pass's angles, see `Transformer.rotations`."""


class Probe(Protocol):
    """What a recorder sees while a pass runs; it belongs to the pass, never to the model."""

    def saw(self, layer: int, queries: Tensor, keys_values: Tensor) -> None:
        """One layer's rotated queries [B, n_new, h, d_h], and rotated keys, then values [B, n_new, 2·n_kv, d_h]."""
        ...


Attend = Callable[[int, Tensor, Tensor], Tensor]
"""How a layer attends: its number, queries [R, h, d_h], keys before values [R, 2·n_kv, d_h] → gathered [R, h, d_h]."""


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
        # A single position attends to whole blocks and gets the same whoever is beside it; counted, to what there is.
        self.padding = BLOCK_TOKENS if packed else 1
        self.activation_dtype = torch.float32 if device.type == "cpu" else dtype

        def product(weight: Tensor, bias: Tensor | None = None) -> Product:
            make = pack if packed else PlainProduct
            return make(weight.to(device), None if bias is None else bias.to(device), dtype)

        def norm(name: str) -> Tensor:
            weight = read(name).to(device, torch.float32)
            return weight * math.sqrt(weight.numel())  # see `norm`

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

    def hidden(
        self,
        ids: Tensor,
        caches: Sequence[KVCache] | None = None,
        probe: Probe | None = None,
        attend: Attend | None = None,
    ) -> Tensor:
        """Runs new positions through all layers.

        `ids` [B, n_new]; with `caches` (one a sequence) the positions follow what each cache holds, their keys and
        values are added to it, and they attend to all of it; without, the rows are whole sequences and nothing is
        kept. `attend` takes the place of this attention, for experiments; with caches it writes them itself. Returns
        the residual stream [B, n_new, d] after the last layer.
        """
        batch, n_new = ids.shape
        self.use_threads(batch * n_new)
        starts = [0] * batch if caches is None else [cache.n_tokens for cache in caches]
        for cache in caches or ():
            cache.reserve(n_new)
        if attend is None and caches is not None:
            attend = CachedAttention(caches, n_new, self.activation_dtype, self.padding).attend
        elif attend is None:
            attend = AttentionWithin(batch).attend
        attention = attend if probe is None else _heard(attend, probe, batch)
        rotations = self.rotations(starts, n_new)
        x = self.embed(ids)
        for index in range(len(self.layers)):
            x = self.through_layer(index, x, rotations, attention)
        for cache in caches or ():
            cache.commit(n_new)
        return x.view(batch, n_new, -1)  # (R, d) → (B, n_new, d)

    def embed(self, ids: Tensor) -> Tensor:
        """The rows of the input table: ids [B, n_new] → x [R, d]."""
        return self.embedding[ids.flatten()].to(self.activation_dtype)

    def through_layer(self, index: int, x: Tensor, rotations: Rotations, attend: Attend) -> Tensor:
        """One layer: attention, then the feed-forward part, each added to the residual stream x [R, d].

        `attend` is given the layer's number, queries [R, h, d_h], and keys before values [R, 2·n_kv, d_h].
        """
        layer = self.layers[index]
        queries, keys_values = self._queries_keys_values(layer, x, rotations)
        x = x + layer.attention_out(attend(index, queries, keys_values).flatten(1))  # (R, h, d_h) → (R, d)
        return x + self._mlp(layer, x)

    def logits(self, hidden: Tensor) -> Tensor:
        """The head: [..., d] → fp32 logits [..., vocab]."""
        self.use_threads(hidden.numel() // hidden.shape[-1])
        return self.head(self.norm(hidden, self.final_norm)).float()

    @property
    def product_bytes(self) -> int:
        """Bytes of every matrix a position multiplies with, the head included: what one pass must read of weights."""
        in_layers = (p.n_bytes for x in self.layers for p in (x.qkv, x.attention_out, x.gate_up, x.down))
        return sum(in_layers) + self.head.n_bytes

    def new_cache(self) -> KVCache:
        """An empty cache in the model's dtype, for one run."""
        return KVCache(self.config, dtype=self.dtype, device=self.device)

    def use_threads(self, n_rows: int) -> None:
        """Sets torch's threads for a pass of so many rows."""
        if self.device.type == "cpu":
            use_threads(self.dtype, n_rows)

    def rotations(self, starts: Sequence[int], n_new: int) -> Rotations:
        """Cosine and signed sine [R, 1, 2, d_h/2] of each new position's angles, in fp32."""
        offsets = torch.arange(n_new, device=self.device)
        positions = (torch.tensor(starts, device=self.device)[:, None] + offsets).flatten()  # (B, n_new) → (R)
        angles = positions[:, None] * self._inverse_frequencies  # (R, d_h/2)
        cos, sin = angles.cos() * self._rotary_factor, angles.sin() * self._rotary_factor
        return torch.stack([cos, cos], 1).unsqueeze(1), torch.stack([-sin, sin], 1).unsqueeze(1)

    def _queries_keys_values(self, layer: Layer, x: Tensor, rotations: Rotations) -> tuple[Tensor, Tensor]:
        """Rotated queries [R, h, d_h], and rotated keys before plain values [R, 2·n_kv, d_h]."""
        heads = self.heads(layer.qkv(self.norm(x, layer.attention_norm)))
        if layer.qk_norm is not None:
            self.norm_heads(heads, layer.qk_norm)
        self.rotate(heads, rotations)
        return self.split(heads)

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        """Gate and up in one product, the gate's SiLU times up, down: x [R, d] → [R, d]."""
        return layer.down(self.gated(layer.gate_up(self.norm(x, layer.mlp_norm))))

    def heads(self, qkv: Tensor) -> Tensor:
        """A product's rows as heads, a view: [R, (h + 2·n_kv)·d_h] → [R, h + 2·n_kv, d_h]."""
        return qkv.view(-1, self.config.n_heads + 2 * self.config.n_kv_heads, self.config.head_dim)

    def split(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [R, h, d_h], and keys before values [R, 2·n_kv, d_h]: views."""
        h, n_kv = self.config.n_heads, self.config.n_kv_heads
        return heads.narrow(1, 0, h), heads.narrow(1, h, 2 * n_kv)

    def norm_heads(self, heads: Tensor, weight: Tensor) -> None:
        """Queries and keys of [R, h + 2·n_kv, d_h], each normed in place by its own weights [h + n_kv, d_h]."""
        turning = heads.narrow(1, 0, self.config.n_heads + self.config.n_kv_heads)
        turning.copy_(self.norm(turning, weight))

    def rotate(self, heads: Tensor, rotations: Rotations) -> None:
        """Queries and keys of [R, h + 2·n_kv, d_h] turn in place, values stay. Element i turns with i + d_h/2."""
        cos, sin = rotations
        h, n_kv, d_h = self.config.n_heads, self.config.n_kv_heads, self.config.head_dim
        halves = heads.view(-1, h + 2 * n_kv, 2, d_h // 2).narrow(1, 0, h + n_kv)
        partners = halves.flip(2)
        halves.mul_(cos).addcmul_(partners, sin)

    def gated(self, gate_up: Tensor) -> Tensor:
        """SiLU of the gate, times up: [R, 2·d_ff] → [R, d_ff]."""
        gate, up = gate_up.split_with_sizes((self.config.d_ff, self.config.d_ff), -1)
        return F.silu(gate) * up

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last axis, in fp32: x / √(mean(x²) + ε) · weight.

        √d·√(mean(x²) + ε) is hypot(‖x‖, √(d·ε)), and `weight` already carries the √d: four small operators where
        `F.rms_norm` takes twice the time for one row on a CPU, 61 times a step in SmolLM2.
        """
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / torch.hypot(length, self._norm_floor[x.shape[-1]]) * weight).to(x.dtype)


def _heard(attend: Attend, probe: Probe, batch: int) -> Attend:
    """The same attention, with a listener that is told before."""

    def tell_and_attend(index: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        probe.saw(index, *(heads.unflatten(0, (batch, -1)) for heads in (queries, keys_values)))
        return attend(index, queries, keys_values)

    return tell_and_attend
