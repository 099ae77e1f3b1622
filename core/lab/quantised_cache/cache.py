"""Keys and values of one sequence as integers with their scales, the newest positions as they are.

What is stored depends on the number of positions alone: of n, the first m are integers (`CacheScheme.n_quantised`). A
pass of several positions gives each of them exactly what it would see if it came alone: old positions as integers, its
own newest ones as they are, also where a later row of the same pass sees them as integers already.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from core.estimate.quantised import Bits, CacheScheme
from core.lab.quantise import Codes, dequantise, packed, quantise, unpacked
from core.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class _Stored:
    """Quantised keys or values of a layer; position (or group of positions) is axis 1 of every tensor."""

    integers: Tensor
    scales: Tensor
    zeros: Tensor | None

    @property
    def n_bytes(self) -> int:
        return self.integers.nbytes + self.scales.nbytes + (0 if self.zeros is None else self.zeros.nbytes)

    def codes(self, bits: Bits) -> Codes:
        return Codes(unpacked(self.integers, bits), self.scales, self.zeros)

    def and_then(self, newer: _Stored) -> _Stored:
        zeros = None
        if self.zeros is not None and newer.zeros is not None:
            zeros = torch.cat([self.zeros, newer.zeros], 1)
        integers, scales = (
            torch.cat(pair, 1) for pair in ((self.integers, newer.integers), (self.scales, newer.scales))
        )
        return _Stored(integers, scales, zeros)


@dataclass(frozen=True, slots=True)
class _Layer:
    keys: _Stored | None
    values: _Stored | None
    newest: Tensor  # (2·n_kv, n − m, d_h), in the model's dtype


class QuantisedCache:
    """The cache of one sequence. Its tensors are replaced and never written to, so a copy shares them."""

    def __init__(self, config: ModelConfig, scheme: CacheScheme, *, dtype: torch.dtype, device: torch.device) -> None:
        empty = torch.empty(2 * config.n_kv_heads, 0, config.head_dim, dtype=dtype, device=device)
        self.scheme, self.n_tokens = scheme, 0
        self._layers = [_Layer(None, None, empty)] * config.n_layers

    @property
    def n_bytes(self) -> int:
        """Bytes of all its tensors."""
        parts = [part for layer in self._layers for part in (layer.keys, layer.values) if part is not None]
        return sum(part.n_bytes for part in parts) + sum(layer.newest.nbytes for layer in self._layers)

    @property
    def n_quantised(self) -> int:
        """Positions whose keys and values are integers."""
        return self.scheme.n_quantised(self.n_tokens)

    def commit(self, n_new: int) -> None:
        """Counts `n_new` positions as cached: every layer has attended to them."""
        self.n_tokens += n_new

    def copied(self) -> QuantisedCache:
        """The same cache, apart from this one."""
        copied = QuantisedCache.__new__(QuantisedCache)
        copied.scheme, copied.n_tokens, copied._layers = self.scheme, self.n_tokens, list(self._layers)
        return copied

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """queries [R, h, d_h] over what is cached and these new keys, then values [R, 2·n_kv, d_h] → [R, h, d_h].

        The new positions are written first; of what then are integers, each row reads what is old enough for it.
        """
        n_past, n_new = self.n_tokens, queries.shape[0]
        before, m, m_before = self._layers[layer], self.scheme.n_quantised(n_past + n_new), self.n_quantised
        new = keys_values.transpose(0, 1).to(before.newest.dtype)  # (R, 2·n_kv, d_h) → (2·n_kv, R, d_h)
        whole = torch.cat([before.newest, new], 1)  # positions m_before … n − 1
        now = self._with_quantised(before, whole, m - m_before)
        self._layers[layer] = now
        old_keys, old_values = self._numbers(now)
        n_kv = whole.shape[0] // 2
        keys, values = (
            part.to(queries.dtype) if old is None else torch.cat([old, part.to(old.dtype)], 1).to(queries.dtype)
            for old, part in ((old_keys, whole[:n_kv]), (old_values, whole[n_kv:]))
        )  # (n_kv, m + n − m_before, d_h): integers' numbers, then those as they are
        attended = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],  # (1, h, R, d_h)
            keys[None],
            values[None],
            attn_mask=self._mask(n_new, m, m_before, queries.device),
            enable_gqa=True,
        )
        return attended[0].transpose(0, 1)

    def keys(self, layer: int) -> Tensor:
        """All keys of a layer as the newest query reads them: fp32 [n_kv, n, d_h]."""
        return self._both(layer)[0]

    def values(self, layer: int) -> Tensor:
        """All values of a layer as the newest query reads them: fp32 [n_kv, n, d_h]."""
        return self._both(layer)[1]

    def _both(self, layer: int) -> tuple[Tensor, Tensor]:
        held = self._layers[layer]
        newest = held.newest.float().chunk(2)
        pairs = zip(self._numbers(held), newest, strict=True)
        keys, values = (part if old is None else torch.cat([old, part], 1) for old, part in pairs)
        return keys, values

    def _mask(self, n_new: int, m: int, m_before: int, device: torch.device) -> Tensor:
        """True where a row looks: [R, m + n − m_before], integers first."""
        seen = torch.arange(self.n_tokens + 1, self.n_tokens + n_new + 1, device=device)[
            :, None
        ]  # positions a row sees
        own = [self.scheme.n_quantised(self.n_tokens + row + 1) for row in range(n_new)]
        old = torch.tensor(own, device=device)[:, None]
        integers = torch.arange(m, device=device) < old
        positions = torch.arange(m_before, self.n_tokens + n_new, device=device)
        return torch.cat([integers, (positions >= old) & (positions < seen)], 1)

    def _with_quantised(self, before: _Layer, whole: Tensor, n_leaving: int) -> _Layer:
        """The layer with the first `n_leaving` of these positions as integers."""
        if not n_leaving:
            return _Layer(before.keys, before.values, whole)
        keys, values = whole[:, :n_leaving].chunk(2)
        if self.scheme.key_group is not None:  # (n_kv, m, d_h) → (n_kv, groups, d_h, g): a channel's positions together
            keys = keys.unflatten(1, (-1, self.scheme.key_group)).mT
        newer = self._stored(keys), self._stored(values)
        older = before.keys, before.values
        joined = [new if old is None else old.and_then(new) for old, new in zip(older, newer, strict=True)]
        return _Layer(joined[0], joined[1], whole[:, n_leaving:].clone())

    def _stored(self, numbers: Tensor) -> _Stored:
        bits = self.scheme.bits
        codes = quantise(numbers, bits, has_zero=self.scheme.scheme(numbers.shape[-1]).has_zero)
        return _Stored(packed(codes.integers, bits), codes.scales, codes.zeros)

    def _numbers(self, layer: _Layer) -> tuple[Tensor | None, Tensor | None]:
        """Quantised keys and values as numbers again: fp32 [n_kv, m, d_h] each."""
        keys, values = (
            None if part is None else dequantise(part.codes(self.scheme.bits)) for part in (layer.keys, layer.values)
        )
        if keys is not None and self.scheme.key_group is not None:
            keys = keys.mT.flatten(1, 2)  # (n_kv, groups, d_h, g) → (n_kv, m, d_h)
        return keys, values
