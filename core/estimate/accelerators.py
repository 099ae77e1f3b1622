"""Accelerators by slug: memory, bandwidth and dense peak rates of one device, with sources.

The data is assets/catalogue/accelerators.toml, read when it is first asked for. Rates with 2:4 sparsity, which vendors
print beside or instead of the dense ones, are in no field.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from core.estimate.catalogue import Remark, Source, read_catalogue, remark
from core.estimate.dtypes import Dtype
from core.refusal import Refusal

Kind = Literal["gpu", "tpu", "apple", "npu"]

# The rates that weights of a dtype may be computed at: the first one that the device has. All others: _WEIGHT_ONLY.
_RATES: dict[str, tuple[str, ...]] = {
    "fp8": ("fp8", "bf16", "fp16", "f32"),
    "f16": ("fp16", "bf16", "f32"),
}
_WEIGHT_ONLY = ("bf16", "fp16", "f32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device.

    Attributes:
        form: "SXM", "PCIe" and the like: the same chip differs in memory, bandwidth and peak between them.
        memory_bytes: what can be addressed; 80 · 2^30 for a GPU sold as "80 GB" unless a reported total is sourced.
        bandwidth_bytes_per_s: of that memory, as published.
        dense_flops: FLOP/s by kind of number (bf16, fp16, fp8, int8; f32 where no matrix rate is published), products
            summed in 32 bits; empty where nothing was collected.
        achieved_flops: the largest rate in FLOP/s that a matrix product was measured at, by kind of number.
        l2_bytes, sram_bytes, registers_bytes, infinity_cache_bytes: memory on the chip, `sram_bytes` being L1 and
            shared memory (or a TPU's VMEM) together; None where no figure was found.
        memory_note: what kind of total `memory_bytes` is, where that needs saying.
        often_miscopied: wrong figures that are often copied for this device.
        disputed: where the sources disagree.
    """

    slug: str
    name: str
    kind: Kind
    form: str
    memory_bytes: int
    bandwidth_bytes_per_s: int
    dense_flops: tuple[tuple[str, float], ...]
    achieved_flops: tuple[tuple[str, float], ...] = ()
    l2_bytes: int | None = None
    sram_bytes: int | None = None
    registers_bytes: int | None = None
    infinity_cache_bytes: int | None = None
    memory_note: Remark | None = None
    often_miscopied: Remark | None = None
    disputed: Remark | None = None
    sources: tuple[Source, ...] = ()


@lru_cache(maxsize=1)
def accelerators() -> dict[str, Accelerator]:
    """All accelerators by slug, in the order of the file."""
    entries, sources = read_catalogue("accelerators.toml")
    return {
        slug: Accelerator(
            slug=slug,
            name=entry["name"],
            kind=entry["kind"],
            form=entry["form"],
            memory_bytes=entry["memory_bytes"],
            bandwidth_bytes_per_s=entry["bandwidth_bytes_per_s"],
            dense_flops=tuple(entry["peak_flops"].items()),
            achieved_flops=tuple(
                (kind, entry[f"achieved_{kind}_flops"]) for kind in ("bf16", "fp8") if f"achieved_{kind}_flops" in entry
            ),
            l2_bytes=entry.get("l2_bytes"),
            sram_bytes=entry.get("sram_bytes"),
            registers_bytes=entry.get("registers_bytes"),
            infinity_cache_bytes=entry.get("infinity_cache_bytes"),
            memory_note=remark(entry, "memory_note"),
            often_miscopied=remark(entry, "often_miscopied"),
            disputed=remark(entry, "disputed"),
            sources=tuple(sources[key] for key in entry["sources"]),
        )
        for slug, entry in entries.items()
    }


def accelerator_named(slug: str) -> Accelerator:
    """The accelerator of that slug, in any case. Raises Refusal, which lists the slugs."""
    known, slug = accelerators(), slug.lower()
    if slug not in known:
        raise Refusal("estimate.accelerator_unknown", accelerator=slug[:40], known=", ".join(known))
    return known[slug]


def peak_flops(accelerator: Accelerator, weight_dtype: Dtype) -> float | None:
    """The dense peak in FLOP/s at which products with weights of a dtype can run; None where none was collected.

    fp8 weights run at the fp8 rate where the device has one. int8, int4 and block formats are ways to store weights:
    they are expanded on the way to the matrix units and multiplied in bf16. So is f32 here: an engine may round f32
    weights before it multiplies, and a floor that assumed the slower f32 rate would no longer be one. Where there is
    no bf16, fp16 takes its place, and a plain f32 rate where there is neither.
    """
    rates = dict(accelerator.dense_flops)
    for kind in _RATES.get(weight_dtype.name, _WEIGHT_ONLY):
        if kind in rates:
            return rates[kind]
    return None
