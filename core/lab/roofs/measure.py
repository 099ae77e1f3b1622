"""The roofs of this machine measured: probe after probe, each in a fresh process, as points of the exclusive slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from core.engine.exclusive import ExclusiveSlot, Measurement, Point
from core.engine.residents import Residents
from core.lab.roofs.machine import caches, this_machine
from core.lab.roofs.probes import Probe, block_bytes, probes_of
from core.lab.roofs.processes import Processes, Runner
from core.lab.roofs.record import Cache, Machine, Reading, Roofs
from core.model.device import choose_device


class Measuring:
    """One measuring of all roofs: put `measurement` in the line for the exclusive slot, or call `at_once`."""

    def __init__(self, machine: Machine, probes: Sequence[Probe], described: tuple[Cache, ...] | None, runner: Runner):
        self._machine, self._probes, self._described, self._runner = machine, probes, described, runner
        self._best: dict[int, dict[str, Any]] = {}
        self.measurement = Measurement(
            "roofs",
            [partial(self._point, index) for index in range(len(probes))],
            own_seconds=runner.used_seconds,
            on_cancel=runner.end,
        )
        self.measurement.future.add_done_callback(lambda _: runner.end())  # whatever it ended of

    def at_once(self, on_point: Callable[[Probe, int], None] = lambda probe, n_done: None) -> Roofs:
        """Measures here and now, where no engine runs; hears of each probe when it is done."""
        slot = ExclusiveSlot(Residents(lambda: 0))
        self.measurement.on_point = lambda index, point: on_point(self._probes[index], index + 1)
        slot.add(self.measurement)
        while slot:
            slot.step(others_wait=False)
        self.measurement.future.result()
        roofs = self.roofs()
        assert roofs is not None
        return roofs

    def roofs(self) -> Roofs | None:
        """The record; None before the last probe is done."""
        done = list(zip(self._probes, self.measurement.done, strict=False))
        if len(done) < len(self._probes) or any(point.value is None for _, point in done):
            return None
        curves = [point.value["curve"] for probe, point in done if probe.what == "curve"]
        return Roofs(
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=self._machine,
            block_bytes=self._probes[0].block_bytes,
            caches=self._described,
            readings=tuple(_reading(probe, point) for probe, point in done if probe.what != "curve"),
            curve=tuple((int(size), float(rate)) for curve in curves for size, rate in curve),
        )

    def _point(self, index: int) -> dict[str, Any] | None:
        """The probe's answer; of several tries the best one, because what disturbs a probe only lowers it."""
        answer = self._runner.run(self._probes[index])
        if answer is None:
            return None
        before = self._best.get(index)
        if before is None or "rate" not in answer or answer["rate"] > before["rate"]:
            self._best[index] = answer
        return self._best[index]


def measuring(runner: Runner | None = None) -> Measuring:
    """A measuring of this machine's roofs. Raises Refusal when its device is not there."""
    machine, described = this_machine(), caches()
    device = choose_device(machine.device)
    block = block_bytes(described, device.free_memory_bytes(), on_cpu=device.kind == "cpu")
    return Measuring(machine, probes_of(machine, block), described, runner or Processes())


def _reading(probe: Probe, point: Point) -> Reading:
    assert probe.what != "curve"
    return Reading(
        roof=probe.what,
        kernel=probe.kernel,
        dtype=probe.dtype,
        n_threads=probe.n_threads,
        rate=point.value["rate"],
        low=point.value["low"],
        high=point.value["high"],
        n_repeats=point.value["n_repeats"],
        disturbed=point.disturbed,
    )
