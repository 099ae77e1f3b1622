"""What others measured, against the floor of the same work: how far above a floor real passes lie.

The data is assets/catalogue/observed.toml (decoding at batch 1) and the achieved rates of accelerators.toml (large
matrix products, which is what a prefill is). A band is the least and the most of the observations, nothing in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from core.estimate.accelerators import accelerator_named, accelerators
from core.estimate.catalogue import Remark, Source, read_catalogue, remark
from core.estimate.catalogue import shape as shape_named
from core.estimate.flops import weights_multiplied
from core.estimate.kv import kv_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One published decode speed of one sequence.

    Attributes:
        bytes_read: weights that a token meets and, where the source says how many, cached rows.
        bandwidth_bytes_per_s: of all cards together.
        outside: why it is not counted into the band, None where it is; rows of several cards are outside anyway.
    """

    id: str
    name: str
    engine: str
    device: str
    n_cards: int
    bytes_read: float
    bandwidth_bytes_per_s: float
    seconds: float
    outside: Remark | None
    source: Source

    @property
    def floor_s(self) -> float:
        """All bytes at full bandwidth."""
        return self.bytes_read / self.bandwidth_bytes_per_s

    @property
    def ratio(self) -> float:
        """Measured over floor."""
        return self.seconds / self.floor_s

    @property
    def is_in_band(self) -> bool:
        """Whether the band counts it."""
        return self.outside is None and self.n_cards == 1


class Band(NamedTuple):
    """The least and the most times a floor that was observed."""

    least: float
    most: float
    n_observations: int


@lru_cache(maxsize=1)
def observations() -> tuple[Observation, ...]:
    """All published decode speeds, in the order of the file."""
    entries, sources = read_catalogue("observed.toml")
    found = []
    for name, entry in entries.items():
        params, cache = entry.get("params_read", 0), entry.get("kv_bytes_per_token", 0) * entry.get("context", 0)
        if "model" in entry:
            shape = shape_named(entry["model"])
            params = sum(weights_multiplied(shape))
            cache = int(kv_bytes(shape, n_tokens=entry.get("context", 0)))
        card = accelerator_named(entry["accelerator"]) if "accelerator" in entry else None
        bandwidth = card.bandwidth_bytes_per_s if card else entry["bandwidth_bytes_per_s"]
        n_cards = entry.get("cards", 1)
        found.append(
            Observation(
                id=name,
                name=entry["name"],
                engine=entry["engine"],
                device=card.name if card else entry["device"],
                n_cards=n_cards,
                bytes_read=params * entry["bits"] / 8 + cache,
                bandwidth_bytes_per_s=bandwidth * n_cards,
                seconds=entry["seconds"] if "seconds" in entry else 1 / entry["tokens_per_s"],
                outside=remark(entry, "outside"),
                source=sources[entry["source"][0]],
            )
        )
    return tuple(found)


@lru_cache(maxsize=1)
def decode_band() -> Band:
    """Times the floor that decoding at batch 1 on one card took."""
    ratios = [one.ratio for one in observations() if one.is_in_band]
    return Band(min(ratios), max(ratios), len(ratios))


@lru_cache(maxsize=1)
def prefill_band() -> Band:
    """Times the floor that the largest measured matrix products took, in bf16: dense peak over achieved rate."""
    ratios = [
        dict(card.dense_flops)[kind] / achieved
        for card in accelerators().values()
        for kind, achieved in card.achieved_flops
        if kind == "bf16"
    ]
    return Band(min(ratios), max(ratios), len(ratios))


class Against(NamedTuple):
    """A measured time beside its floor. A ratio below 1 is no speed: units, or a device nobody waited for."""

    ratio: float

    @property
    def is_possible(self) -> bool:
        """Whether the clock can be right, give or take a hundredth of its own."""
        return self.ratio >= 0.99


def against_floor(measured_s: float, floor_s: float) -> Against:
    """Measured over floor. ZeroDivisionError for a floor of nothing."""
    return Against(measured_s / floor_s)
