"""Bytes of weights and caches whose numbers are integers of few bits in groups, each group with its scale.

A group's integers lie packed, two of 4 bits in a byte; its scale takes 16 bits, and so does its zero point where it has
one. Groups never cross the end of a row, and a row takes whole groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.estimate.dtypes import Dtype, KvDtypes
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.estimate.weights import weights
from core.refusal import Refusal

Bits = Literal[4, 8]
SCALE_BYTES = 2
GROUPS = (32, 64, 128)
"""Numbers in a group that torch's own 4-bit product knows, of those in common use."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How numbers become integers: so many bits, one scale for `group` numbers (None: for a whole row), and whether
    the group's range may lie off zero. Raises Refusal for a width or a group that is not served."""

    bits: Bits
    group: int | None
    has_zero: bool = False

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise Refusal("techniques.quantised_bits", value=repr(self.bits)[:40])
        if self.group is not None and (self.group < 2 or self.group % 2):
            raise Refusal("techniques.quantised_group", value=repr(self.group)[:40])

    def dtype(self, width: int) -> Dtype:
        """The format of a row of `width` numbers, as the estimates know formats."""
        group = self.group or width
        scales = SCALE_BYTES * (2 if self.has_zero else 1)
        return Dtype(f"int{self.bits}", group, -(-group * self.bits // 8) + scales, scales)

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` numbers."""
        return self.dtype(width).row_bytes(width)


INT8_ROWS = Scheme(8, None)


def quantised_weight_bytes(shape: ModelShape, scheme: Scheme, rest: Dtype, *, with_head: bool) -> int:
    """Bytes of all matrices that one position is multiplied with, quantised; the head as `rest` unless `with_head`.

    For models without experts, which are those that run here.
    """
    listed = [weight for weight in weights(shape) if weight.multiplies]
    formats = [(scheme.dtype(w.row) if with_head or w.group is not None else rest) for w in listed]
    return sum(w.size // w.row * dtype.row_bytes(w.row) for w, dtype in zip(listed, formats, strict=True))


@dataclass(frozen=True, slots=True)
class CacheScheme:
    """How cached keys and values are kept.

    Attributes:
        bits: of one number.
        key_group: positions that share one scale in each channel of the keys; None: each position's key heads have
            their own scales, as values always do.
        window: so many of the newest positions stay as they are.
    """

    bits: Bits
    key_group: int | None = None
    window: int = 0

    def __post_init__(self) -> None:
        Scheme(self.bits, self.key_group)
        if self.window < 0:
            raise Refusal("techniques.quantised_window", value=repr(self.window)[:40])

    def scheme(self, width: int) -> Scheme:
        """Of `width` numbers that share a scale; 4 bits have a zero point."""
        return Scheme(self.bits, width, has_zero=self.bits == 4)

    @property
    def least_tokens(self) -> int:
        """The shortest sequence with integers in its cache."""
        return self.window + (self.key_group or 1)

    def n_quantised(self, n_tokens: int) -> int:
        """How many of n positions are integers: all but the window, in whole groups where positions share a scale."""
        step = self.key_group or 1
        return max(0, n_tokens - self.window) // step * step


def quantised_kv_bytes(shape: ModelShape, scheme: CacheScheme, n_tokens: int, *, head_dim: int, rest: KvDtypes) -> int:
    """Bytes of a cache of n positions: m of them integers with their scales, the other n − m as `rest`.

    Raises Refusal where a group of positions does not divide the width of a position's keys, which has to be so for a
    position to have a whole number of bytes.
    """
    m = scheme.n_quantised(n_tokens)
    values = scheme.scheme(head_dim).dtype(head_dim)
    keys = values if scheme.key_group is None else scheme.scheme(scheme.key_group).dtype(scheme.key_group)
    quantised = kv_bytes(shape, n_tokens=m, dtypes=KvDtypes(keys, values))
    return int(quantised + kv_bytes(shape, n_tokens=n_tokens - m, dtypes=rest))
