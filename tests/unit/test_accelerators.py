"""The catalogue of accelerators against the figures it was compiled from: dense peaks, bandwidths, capacities."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from core.estimate.accelerators import Accelerator, accelerator_named, accelerators, peak_flops
from core.estimate.dtypes import DTYPES
from core.refusal import Refusal

GB, GIB, MIB = 10**9, 2**30, 2**20
KINDS = ("bf16", "fp16", "fp8", "int8", "f32")


class Expected(NamedTuple):
    """A row of the reference: bytes, GB/s, dense TFLOP/s of products with bf16 and with fp8 weights, and int8 TOP/s."""

    name: str
    memory: int
    bandwidth: int
    bf16: float | None
    fp8: float | None
    int8: float | None = None


# GPUs by their label in 2^30 or by what they report, TPUs and Apple in 10^9.
DEVICES = {
    "a100-sxm-40gb": Expected("A100 SXM 40GB", 40 * GIB, 1555, 312, 312, 624),
    "a100-sxm-80gb": Expected("A100 SXM 80GB", 80 * GIB, 2039, 312, 312, 624),
    "a100-pcie-80gb": Expected("A100 PCIe 80GB", 80 * GIB, 1935, 312, 312, 624),
    "h100-sxm": Expected("H100 SXM", 80 * GIB, 3350, 989, 1979, 1979),
    "h100-pcie": Expected("H100 PCIe", 80 * GIB, 2000, 756.5, 1513, 1513),
    "h200-sxm": Expected("H200 SXM", 141 * GIB, 4800, 989, 1979, 1979),
    "h20": Expected("H20", 96 * GIB, 4000, 148, 296, 296),
    "b200": Expected("B200", 180 * GIB, 7700, 2250, 4500, 4500),
    "gb200": Expected("GB200, per GPU", 189_471 * MIB, 8000, 2500, 5000, 5000),
    "l4": Expected("L4", 24 * GIB, 300, 121, 242, 242),
    "l40s": Expected("L40S", 46_068 * MIB, 864, 362.05, 733, 733),
    "a10g": Expected("A10G", 24 * GIB, 600, 70, 70, 140),
    "v100-sxm2-16gb": Expected("V100 SXM2 16GB", 16 * GIB, 900, 125, 125, 62),
    "v100-sxm2-32gb": Expected("V100 SXM2 32GB", 32 * GIB, 900, 125, 125, 62),
    "t4": Expected("T4", 16 * GIB, 320, 65, 65, 130),
    "rtx-3090": Expected("RTX 3090", int(23.58 * GIB), 936, 71, 71, 284),
    "rtx-4080": Expected("RTX 4080", int(15.99 * GIB), 716, None, None),
    "rtx-4090": Expected("RTX 4090", int(23.55 * GIB), 1008, 165.2, 330.3, 660.6),
    "rtx-5090": Expected("RTX 5090", 32 * GIB, 1792, 209.5, 419, 838),
    "mi300x": Expected("MI300X", 192 * GIB, 5300, 1307.4, 2614.9, 2614.9),
    "m2-ultra": Expected("Apple M2 Ultra (76-core)", 192 * GB, 800, 27.2, 27.2),
    "m3-max": Expected("Apple M3 Max (40-core)", 128 * GB, 400, 14.2, 14.2),
    "m4-max": Expected("Apple M4 Max (40-core)", 128 * GB, 546, 18.4, 18.4),
    "ascend-910b": Expected("Ascend 910B (910B3)", 64 * GIB, 1600, 313, 313),
    "tpu-v5e": Expected("TPU v5e", 16 * GB, 819, 197, 197, 393),
    "tpu-v5p": Expected("TPU v5p", 95 * GB, 2765, 459, 459, 918),
    "tpu-v6e": Expected("TPU v6e", 32 * GB, 1638, 918, 918, 1836),
}
# TFLOP/s that tables print for these and that are not dense tensor-core rates with 32-bit accumulation.
MISCOPIED: dict[str, dict[str, tuple[float, ...]]] = {
    "a100-sxm-40gb": {"bf16": (624, 77.97), "int8": (1248,)},
    "a100-sxm-80gb": {"bf16": (624, 77.97), "int8": (1248,)},
    "a100-pcie-80gb": {"bf16": (624, 77.97), "int8": (1248,)},
    "h100-sxm": {"bf16": (1979, 204.9, 267.6), "fp8": (3958,)},
    "h100-pcie": {"bf16": (1513, 204.9, 267.6), "fp8": (3026,)},
    "h200-sxm": {"bf16": (1979,), "fp8": (3958,)},
    "b200": {"bf16": (4500,), "fp8": (9000,)},
    "gb200": {"bf16": (5000,), "fp8": (10000,)},
    "l4": {"bf16": (242, 30.3), "fp8": (485,)},
    "l40s": {"bf16": (733,), "fp8": (1466,)},
    "a10g": {"bf16": (125, 31.52)},
    "v100-sxm2-16gb": {"fp16": (112,)},
    "v100-sxm2-32gb": {"fp16": (112,)},
    "rtx-3090": {"bf16": (142, 35.6)},
    "rtx-4090": {"bf16": (330, 82.6), "fp8": (660,), "int8": (1321,)},
    "rtx-5090": {"fp16": (838, 104.8), "fp8": (1677,)},
    "mi300x": {"bf16": (383,)},
}


def test_every_accelerator_of_the_reference_is_there() -> None:
    assert {slug: device.name for slug, device in accelerators().items()} == {
        slug: row.name for slug, row in DEVICES.items()
    }
    assert all(slug == device.slug for slug, device in accelerators().items())
    assert {device.kind for device in accelerators().values()} == {"gpu", "tpu", "apple", "npu"}


@pytest.mark.parametrize("device", accelerators().values(), ids=list(accelerators()))
def test_units_are_sane(device: Accelerator) -> None:
    assert 10**10 < device.memory_bytes < 10**12 and isinstance(device.memory_bytes, int)
    assert 10**11 < device.bandwidth_bytes_per_s < 10**13
    assert all(10**13 < rate < 10**16 for _, rate in (*device.dense_flops, *device.achieved_flops))
    dense = dict(device.dense_flops)
    assert set(dense) <= set(KINDS) and ("f32" in dense) == (device.kind == "apple")
    assert all(kind not in dense or 0.5 < rate / dense[kind] < 0.9 for kind, rate in device.achieved_flops)
    on_chip = (device.l2_bytes, device.sram_bytes, device.registers_bytes, device.infinity_cache_bytes)
    assert all(2**22 <= size <= 2**28 for size in on_chip if size is not None)
    assert device.form and hash(device) == hash(accelerator_named(device.slug))


@pytest.mark.parametrize("slug", DEVICES)
def test_memory_is_as_the_conventions_say(slug: str) -> None:
    device = accelerators()[slug]
    assert device.memory_bytes == DEVICES[slug].memory
    if device.memory_bytes % GIB and device.kind == "gpu":
        assert device.memory_note is not None  # a reported total


@pytest.mark.parametrize("slug", DEVICES)
def test_speeds_are_the_dense_ones(slug: str) -> None:
    device = accelerators()[slug]
    row = DEVICES[slug]
    assert device.bandwidth_bytes_per_s == row.bandwidth * GB
    for dtype, teraflops in (("bf16", row.bf16), ("fp8", row.fp8)):
        peak = peak_flops(device, DTYPES[dtype])
        assert peak == (None if teraflops is None else pytest.approx(teraflops * 1e12, rel=1e-12))
    assert dict(device.dense_flops).get("int8") == (row.int8 and pytest.approx(row.int8 * 1e12, rel=1e-12))


def test_which_kinds_of_numbers_a_device_knows() -> None:
    having = {kind: {slug for slug in DEVICES if kind in dict(accelerators()[slug].dense_flops)} for kind in KINDS}
    assert having["fp8"] == {slug for slug, row in DEVICES.items() if row.fp8 != row.bf16} | {"tpu-v6e"}
    apple, tpu = {"m2-ultra", "m3-max", "m4-max"}, {"tpu-v5e", "tpu-v5p", "tpu-v6e"}
    only_fp16 = {"v100-sxm2-16gb", "v100-sxm2-32gb", "t4", "ascend-910b"}
    assert having["f32"] == apple
    assert having["bf16"] == DEVICES.keys() - only_fp16 - apple - {"rtx-4080"}
    assert having["fp16"] == DEVICES.keys() - tpu - apple - {"rtx-4080"}
    for device in accelerators().values():
        dense = dict(device.dense_flops)
        assert not {"bf16", "fp16"} <= dense.keys() or dense["bf16"] == dense["fp16"]


def test_memory_on_the_chip() -> None:
    sizes = {
        slug: (device.l2_bytes, device.sram_bytes, device.registers_bytes) for slug, device in accelerators().items()
    }
    assert sizes["a100-sxm-80gb"] == (40 * MIB, 108 * 192 * 1024, 27 * MIB)
    assert sizes["a100-sxm-40gb"] == sizes["a100-pcie-80gb"] == sizes["a100-sxm-80gb"]
    assert sizes["h100-sxm"] == sizes["h200-sxm"] == (50 * MIB, 132 * 256 * 1024, 33 * MIB)
    assert sizes["tpu-v5e"] == (None, 128 * MIB, None)
    assert sizes["v100-sxm2-16gb"] == sizes["v100-sxm2-32gb"] == (6 * MIB, None, 20 * MIB)
    l2 = {"h100-pcie": 50, "h20": 60, "b200": 126, "gb200": 126, "t4": 4, "rtx-3090": 6, "rtx-4090": 72, "rtx-5090": 96}
    assert {slug: sizes[slug][0] for slug in l2} == {slug: size * MIB for slug, size in l2.items()}
    assert accelerators()["mi300x"].infinity_cache_bytes == 256 * MIB and sizes["mi300x"][0] == 32 * MIB


@pytest.mark.parametrize("slug", MISCOPIED)
def test_no_peak_is_a_miscopied_one(slug: str) -> None:
    device = accelerators()[slug]
    dense = dict(device.dense_flops)
    for kind, figures in MISCOPIED[slug].items():
        for teraflops in figures:
            assert abs(dense[kind] / (teraflops * 1e12) - 1) > 0.05
            assert device.often_miscopied is not None and f"{teraflops:,}" in device.often_miscopied.en


def test_dense_rates_follow_from_the_chips() -> None:
    """Tensor cores × multiply-adds a clock × 2 × clock, as STAS reckons them."""
    for slug, cores, per_clock, hertz in (
        ("h100-sxm", 528, 512, 1.83e9),
        ("a100-sxm-80gb", 432, 256, 1.41e9),
        ("mi300x", 1216, 256, 2.1e9),
    ):
        peak = peak_flops(accelerators()[slug], DTYPES["bf16"])
        assert peak == pytest.approx(cores * per_clock * 2 * hertz, rel=2e-3)


def test_which_rate_weights_of_a_dtype_run_at() -> None:
    h100, a100, v100 = (accelerator_named(slug) for slug in ("h100-sxm", "a100-sxm-80gb", "v100-sxm2-16gb"))
    m2, none = accelerator_named("m2-ultra"), accelerator_named("rtx-4080")
    for name, dtype in DTYPES.items():
        assert peak_flops(h100, dtype) == (1979e12 if name == "fp8" else 989e12), name
        assert peak_flops(a100, dtype) == 312e12, name
        assert peak_flops(v100, dtype) == 125e12, name
        assert peak_flops(m2, dtype) == 27.2e12, name
        assert peak_flops(none, dtype) is None


def test_what_was_measured() -> None:
    measured = {slug: dict(device.achieved_flops) for slug, device in accelerators().items() if device.achieved_flops}
    assert measured == {
        "a100-sxm-40gb": {"bf16": 271.2e12},
        "a100-sxm-80gb": {"bf16": 271.2e12},
        "a100-pcie-80gb": {"bf16": 252.9e12},
        "h100-sxm": {"bf16": 794.5e12, "fp8": 1402.6e12},
        "h200-sxm": {"fp8": 1453.4e12},
        "b200": {"bf16": 1745e12, "fp8": 3432.5e12},
        "gb200": {"bf16": 1822e12, "fp8": 3615.6e12},
        "mi300x": {"bf16": 668e12},
    }


def test_an_unknown_accelerator_is_refused_with_what_there_is() -> None:
    for slug in ("H100", "h100", "", "sources", "x" * 1000):
        with pytest.raises(Refusal) as refused:
            accelerator_named(slug)
        assert refused.value.key == "estimate.accelerator_unknown" and len(refused.value.sentence()) < 800
        assert all(known in refused.value.sentence(language) for language in ("en", "zh") for known in DEVICES)
