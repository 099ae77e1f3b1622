"""For tests of the roofs: a record made by hand, and a runner that answers at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.engine.exclusive import NotYet
from core.lab.roofs.machine import this_machine
from core.lab.roofs.probes import Probe
from core.lab.roofs.record import Cache, Machine, Reading, Roof, Roofs

MACHINE = Machine(processor="A processor", n_cores=4, n_threads=2, torch="2.0", device="cpu", device_name="A processor")
GB = 1e9


def reading(roof: Roof, rate: float, dtype: str = "f32", **more: Any) -> Reading:
    """A reading whose quartiles lie a tenth off."""
    plain = Reading(
        roof=roof,
        kernel={"read": "sum", "copy": "copy", "product": "plain"}[roof],
        dtype=dtype,
        n_threads=1,
        rate=rate,
        low=0.9 * rate,
        high=1.1 * rate,
        n_repeats=9,
        disturbed=False,
    )
    return replace(plain, **more)


def roofs_of(machine: Machine = MACHINE, **more: Any) -> Roofs:
    """20 GB/s to read, 100 GFLOP/s in f32, twice that in bf16, none in f16; every kind has a slower reading too."""
    plain = Roofs(
        measured_at="2025-01-02T03:04:05+00:00",
        machine=machine,
        block_bytes=2**27,
        caches=(Cache(1, "Data", 2**15, 2), Cache(3, "Unified", 2**20, 1)),
        readings=(
            reading("read", 18 * GB, kernel="dot"),
            reading("read", 20 * GB),
            reading("read", 11 * GB, n_threads=2, disturbed=True),
            reading("copy", 15 * GB, n_threads=2),
            reading("product", 100 * GB, n_threads=2),
            reading("product", 60 * GB, kernel="onednn"),
            reading("product", 200 * GB, "bf16"),
        ),
        curve=((2**14, 90 * GB), (2**27, 19 * GB)),
    )
    return replace(plain, **more)


def roofs_here(**more: Any) -> Roofs:
    """The same, as if measured on this very machine."""
    return roofs_of(this_machine(), **more)


class FakeRunner:
    """Answers every probe at once; the rate is 10⁹ times its place in the order of asking.

    `starts` probes say first that they are not yet ready; `fails` is raised instead of the last answer.
    """

    def __init__(self, starts: int = 0, fails: Exception | None = None) -> None:
        self.asked: list[Probe] = []
        self.is_ended = False
        self._starts, self._fails = starts, fails

    def run(self, probe: Probe) -> dict[str, Any] | None:
        if self._starts:
            self._starts -= 1
            raise NotYet
        if self.is_ended:
            return None
        self.asked.append(probe)
        if probe.what == "curve":
            if self._fails is not None:
                raise self._fails
            return {"curve": [[2**14, 5e10], [2**20, 2e10]]}
        rate = len(self.asked) * GB
        return {"rate": rate, "low": 0.9 * rate, "high": 1.2 * rate, "n_repeats": 8}

    def end(self) -> None:
        self.is_ended = True

    def used_seconds(self) -> float:
        return 0.0
