"""Measured speed against the roofline (I): every floor lies at or below what was measured, within the stated factor."""

from __future__ import annotations

import pytest

from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import CATALOGUE_FOLDER, shape
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.estimate import Request, estimate
from core.estimate.flops import decode_flops, prefill_flops, weights_multiplied
from core.estimate.kv import kv_bytes
from core.estimate.observed import against_floor, decode_band, observations, prefill_band
from core.estimate.shape import ModelShape
from core.words import LANGUAGES
from tests.unit.published import LLAMA_3_70B

# Row → milliseconds of the floor as the collection reckons it, and the most times that the measured one may be.
DECODES = {
    "I01": (16.04, 1.6),
    "I03": (14.89, 1.6),
    "I05": (7.76, 3),
    "I07": (7.50, 2.5),
    "I09": (18.76, 1.8),
    "I11": (4.94, 2.2),
    "I13": (5.78, 2.6),
    "I15": (6.48, 1.8),
    "I17": (2.03, 3.2),
    "I19": (7.36, 1.8),
    "I21": (0.81, 5),
    "I23": (24.75, 3),
    "I27": (8.09, 1.8),
    "I31": (0.86, 6),
    "I33": (3.78, 4),
    "I35": (15.99, 4),
    "I37": (15.30, 1.6),
    "I39": (3.51, 3.5),
    "I41": (38.52, 1.6),
    "I43": (88.10, 1.5),
    "I45": (21.30, 1.6),
    "I47": (7.17, 1.8),
    "I49": (7.0, 5),
}
IDS = """
    I01 I03 I05 I07 I09 I11 I13 I15 I17 I19 I21 I23 I25 I27 I29
    I31 I33 I35 I37 I39 I41 I43 I45 I47 I49 I51 I53 I55 I57 I59 I61
"""
LEFT_OUT = {"I29": "compares two times that were both measured: prefix caching leaves the pace as it was"}
LLAMA = shape("llama-3.1-8b")


def prefill_share(card: str, tokens_per_s: float, n: int) -> float:
    """Of the dense peak, for prompts of n tokens."""
    peak = dict(accelerator_named(card).dense_flops)["bf16"]
    return float(prefill_flops(LLAMA, n, causal=True) / n * tokens_per_s / peak)


def offline_share(model: ModelShape, card: str, n_in: int, n_out: int, tokens_per_s: float) -> float:
    """Of the fp8 peak, a server's output tokens a second with prefill and decode of each request counted."""
    flops = prefill_flops(model, n_in, causal=True) + sum(decode_flops(model, n_in + i) for i in range(1, n_out))
    return float(flops / n_out * tokens_per_s / dict(accelerator_named(card).dense_flops)["fp8"])


@pytest.mark.parametrize("row", DECODES)
def test_a_decode_lies_above_its_floor(row: str) -> None:
    floor_ms, most = DECODES[row]
    (found,) = (one for one in observations() if one.id == row)
    assert 1 <= found.ratio <= most
    # 512 or 1,024 positions of cache, where the row says that so many were generated, and I27's own bandwidth.
    assert found.floor_s * 1000 == pytest.approx(floor_ms, rel=0.04)


@pytest.mark.parametrize(("row", "tokens_per_s", "gb_per_s"), [("I15", 104.9, 1397.31), ("I19", 93.89, 1410.76)])
def test_i25_bandwidth_is_bytes_times_pace(row: str, tokens_per_s: float, gb_per_s: float) -> None:
    (found,) = (one for one in observations() if one.id == row)
    assert found.bytes_read * tokens_per_s / 1e9 == pytest.approx(gb_per_s, rel=0.01)


def test_i51_i53_a_prefill_stays_below_the_dense_peak() -> None:
    assert prefill_share("rtx-4090", 9056.26, 1024) == pytest.approx(0.77, abs=0.01)
    assert prefill_share("h100-pcie", 10_342.63, 1024) == pytest.approx(0.19, abs=0.01)


@pytest.mark.parametrize(
    ("n", "measured", "at_least"), [(8000, 0.39, 0.15), (32_000, 2.29, 0.87), (100_000, 6.80, 4.96)]
)
def test_i55_first_tokens_come_after_the_floor(n: int, measured: float, at_least: float) -> None:
    made = estimate(shape("glm-4-9b-chat"), Request(context=n, accelerator=accelerator_named("h100-sxm")))
    assert made.prefill.floor is not None
    floor_s = made.prefill.floor.seconds
    assert floor_s <= measured <= 4 * floor_s and floor_s == pytest.approx(at_least, rel=0.08)


def test_i57_more_cache_takes_longer() -> None:
    more_s = (8192 - 512) / 2 * kv_bytes(LLAMA, n_tokens=1) / accelerator_named("rtx-4090").bandwidth_bytes_per_s
    measured_s = 1 / 50.88 - 1 / 54.84
    assert more_s == pytest.approx(0.5e-3, rel=0.01) and 1 <= against_floor(measured_s, more_s).ratio <= 4


def test_i59_i61_servers_reach_a_share_of_the_peak() -> None:
    assert offline_share(LLAMA, "h100-sxm", 2048, 128, 3450) == pytest.approx(
        0.41, abs=0.03
    )  # the source leaves attention out
    assert offline_share(LLAMA_3_70B, "h200-sxm", 128, 128, 3803) == pytest.approx(0.53, abs=0.02)


def test_the_band_is_one_card_at_batch_1() -> None:
    band = decode_band()
    assert (round(band.least, 2), round(band.most, 2)) == (1.15, 2.52)
    outside = {one.id for one in observations() if not one.is_in_band}
    assert outside == {"I21", "I23", "I27", "I31", "I33", "I35", "I49"}
    assert band.n_observations == len(DECODES) - len(outside)
    assert all(one.outside is not None or one.n_cards > 1 for one in observations() if one.id in outside)


def test_the_prefill_band_is_achieved_against_dense() -> None:
    band = prefill_band()
    assert 1 / band.least == pytest.approx(0.869, abs=0.001) and 1 / band.most == pytest.approx(0.511, abs=0.001)


def test_every_observation_names_its_source_and_says_why_in_both_languages() -> None:
    assert (CATALOGUE_FOLDER / "observed.toml").exists()
    for one in observations():
        assert len(one.source.place) > 10
        assert one.outside is None or all(len(one.outside.sentence(language)) > 10 for language in LANGUAGES)


def test_every_row_is_computed_or_left_out() -> None:
    assert set(DECODES) == {one.id for one in observations()}
    others = {"I25", "I51", "I53", "I55", "I57", "I59", "I61"}
    assert set(DECODES) | others | set(LEFT_OUT) == set(IDS.split())


def test_stored_bits_are_those_of_the_file() -> None:
    """Q4_K_M's file of 4.58 GiB, less the table of which one row is read (4.5 bits a number)."""
    (found,) = (one for one in observations() if one.id == "I41")
    table = 128_256 * 4096 * 4.5 / 8
    assert found.bytes_read == pytest.approx(4.58 * 2**30 - table, rel=2e-3)
    assert sum(weights_multiplied(LLAMA)) * 2 == estimate(LLAMA, Request()).decode.weights_read
    assert WeightDtypes(DTYPES["bf16"]).rest.bytes_per_number == 2
