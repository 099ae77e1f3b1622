"""How many bytes numbers take: plain dtypes, and block formats that store their scales beside the numbers.

A block never crosses the end of a row, so a row takes whole blocks, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from core.refusal import Refusal

Part = Literal["input_table", "positions", "attention", "feed_forward", "experts", "norms", "head"]


class Dtype(NamedTuple):
    """`block` numbers take `block_bytes` bytes, of them `scale_bytes` for what describes the block."""

    name: str
    block: int
    block_bytes: int
    scale_bytes: int = 0

    @property
    def bytes_per_number(self) -> float:
        """Bytes of one number in a row of whole blocks."""
        return self.block_bytes / self.block

    @property
    def without_scales(self) -> Dtype:
        """The numbers alone, as if nothing had to describe their blocks."""
        return Dtype(self.name, self.block, self.block_bytes - self.scale_bytes)

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` numbers."""
        return -(-width // self.block) * self.block_bytes


# Block formats: ggml's block structures (a fp16 scale, a second one or a minimum where there are two, packed numbers),
# and the OCP microscaling format mxfp4: 32 four-bit numbers and one shared exponent of 8 bits.
DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("f32", 1, 4),
        Dtype("bf16", 1, 2),
        Dtype("f16", 1, 2),
        Dtype("fp8", 1, 1),
        Dtype("int8", 1, 1),
        Dtype("int4", 2, 1),
        Dtype("q8_0", 32, 34, 2),
        Dtype("q5_1", 32, 24, 4),
        Dtype("q5_0", 32, 22, 2),
        Dtype("q4_1", 32, 20, 4),
        Dtype("q4_0", 32, 18, 2),
        Dtype("iq4_nl", 32, 18, 2),
        Dtype("mxfp4", 32, 17, 1),
    )
}
BF16 = DTYPES["bf16"]
# What may be given a dtype of its own in `bf16,experts=mxfp4`.
PARTS_BY_WORD: dict[str, Part] = {
    "table": "input_table",
    "attention": "attention",
    "feed_forward": "feed_forward",
    "experts": "experts",
    "head": "head",
}

_WORDS = {part: word for word, part in PARTS_BY_WORD.items()}


@dataclass(frozen=True, slots=True)
class WeightDtypes:
    """The dtype of the weights, and of parts whose matrices are stored differently from the rest.

    Norms, biases and routers are always stored as `rest`, as quantised models keep them.
    """

    rest: Dtype = BF16
    parts: tuple[tuple[Part, Dtype], ...] = ()

    def of(self, part: Part, follows_part: bool = True) -> Dtype:
        """The dtype of a tensor of `part`, which may not follow what is said of the part."""
        return dict(self.parts).get(part, self.rest) if follows_part else self.rest

    def parts_without(self, present: Iterable[Part]) -> list[str]:
        """The words of the parts that were given a dtype although a model with these `present` has none of them."""
        there = set(present)
        return [_WORDS[part] for part, _ in self.parts if part not in there]

    def __str__(self) -> str:
        return ",".join([self.rest.name, *(f"{_WORDS[part]}={dtype.name}" for part, dtype in self.parts)])


@dataclass(frozen=True, slots=True)
class KvDtypes:
    """The dtypes of cached keys and of cached values; a latent (MLA) is stored once, as keys are."""

    k: Dtype = BF16
    v: Dtype = BF16

    def __str__(self) -> str:
        return self.k.name if self.k == self.v else f"{self.k.name}:{self.v.name}"


BF16_WEIGHTS, BF16_KV = WeightDtypes(), KvDtypes()


def dtype_named(name: str, field: str) -> Dtype:
    """The dtype of that name. Raises Refusal, which names the field."""
    if name not in DTYPES:
        raise Refusal("estimate.dtype_unknown", field=field, dtype=name[:40], known=", ".join(DTYPES))
    return DTYPES[name]


def weight_dtypes(text: str) -> WeightDtypes:
    """`bf16`, or with parts of their own `bf16,experts=mxfp4,table=q8_0`. Raises Refusal."""
    rest, *others = text.split(",")
    parts: dict[Part, Dtype] = {}
    for entry in others:
        word, is_assigned, name = entry.partition("=")
        if word not in PARTS_BY_WORD or not is_assigned or PARTS_BY_WORD[word] in parts:
            raise Refusal("estimate.part_unknown", part=entry[:40], known=", ".join(PARTS_BY_WORD))
        parts[PARTS_BY_WORD[word]] = dtype_named(name, "weight_dtype")
    return WeightDtypes(dtype_named(rest, "weight_dtype"), tuple(parts.items()))


def kv_dtypes(text: str) -> KvDtypes:
    """`bf16` for both, or `q8_0:f16` for keys and values. Raises Refusal."""
    k, has_two, v = text.partition(":")
    return KvDtypes(dtype_named(k, "kv_dtype"), dtype_named(v if has_two else k, "kv_dtype"))
