"""Measuring roofs: which probes, in processes of their own, cancelled, failed; and real probes at a small size."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from core.engine import exclusive as exclusive_module
from core.engine.engine import Engine
from core.engine.exclusive import ExclusiveSlot, Measurement, NotYet, used_by_processes
from core.engine.residents import Residents
from core.lab.roofs import processes as processes_module
from core.lab.roofs.kernels import Sizes, copying, layout_of, multiplying, reading, rereading
from core.lab.roofs.measure import Measuring, measuring
from core.lab.roofs.probe import fastest, rates
from core.lab.roofs.probes import Probe, probes_of
from core.lab.roofs.processes import Processes, command
from core.model.device import DTYPES, Device
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE, others_use, values, wait_until
from tests.roofs import GB, MACHINE, FakeRunner

CPU = Device(torch.device("cpu"))
SMALL = Probe("read", "sum", "f32", 1, "cpu", 2**20)


# --- the kernels do what they say


@pytest.mark.parametrize("kernel", ["sum", "dot", "plain"])
def test_a_read_counts_the_bytes_it_reads(kernel: str) -> None:
    made = reading(kernel, "f32", CPU, 2**26)
    assert made.amount == 2**26
    made.work()


def test_a_copy_counts_what_it_reads_and_what_it_writes() -> None:
    made = copying("f32", CPU, 2**16)
    assert made.amount == 2**16
    copied = made.work()
    assert isinstance(copied, torch.Tensor) and 2 * copied.nbytes == 2**16


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_the_one_the_model_uses(dtype: str) -> None:
    """Ones times a matrix of 1/width are ones; 2·n·width² FLOP."""
    small = Sizes(64, (1, 3))
    for n_rows, made in zip(small.rows, multiplying(layout_of(dtype, CPU), dtype, CPU, small), strict=True):
        assert made.amount == 2 * n_rows * 64 * 64
        product = made.work()
        assert isinstance(product, torch.Tensor) and torch.allclose(product.float(), torch.ones(n_rows, 64), atol=1e-2)


def test_the_curve_reads_the_same_block_over_and_over() -> None:
    sizes = dict(rereading(2**18))
    assert list(sizes) == [2**k for k in range(14, 19)]
    for size, made in sizes.items():
        assert made.amount % size == 0 and made.amount >= 2**26
        total = made.work()
        assert isinstance(total, torch.Tensor) and total.item() == made.amount / 4


def test_rates_are_ordered_and_the_best_size_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0] * 2 + [4.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    monkeypatch.setattr(Device, "seconds_of", lambda self, work: next(seconds))
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    never = reading("sum", "f32", CPU, 4096)._replace(amount=8)
    with pytest.raises(StopIteration):  # the clock stands still: only the least number of repeats ends it
        rates(CPU, never)
    clock = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    seconds = iter([1.0] * 2 + [4.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    found = rates(CPU, never)
    assert found == {"rate": 4.0, "low": 4.0, "high": 8.0, "n_repeats": 7}
    taken = iter([*[4.0] * 9, *[0.1] * 9])
    monkeypatch.setattr(Device, "seconds_of", lambda self, work: next(taken))
    assert fastest(CPU, [never, never])["rate"] == 2.0, "a second size was tried although the first was slow"


# --- the plan


def test_every_roof_is_probed_with_every_number_of_threads() -> None:
    probes = probes_of(MACHINE, 2**27)
    for what, dtypes in (("read", {"f32"}), ("copy", {"f32"}), ("product", set(DTYPES))):
        for n_threads in (1, 2):
            found = {probe.dtype for probe in probes if (probe.what, probe.n_threads) == (what, n_threads)}
            assert found >= dtypes, (what, n_threads)
    assert len(set(probes)) == len(probes)
    assert [probe.n_threads for probe in probes if probe.what == "curve"] == [1]
    assert {layout_of(name, CPU) for name in DTYPES} <= {each.kernel for each in probes if each.what == "product"}


# --- measured by a fake


def test_all_probes_make_a_record() -> None:
    runner = FakeRunner(starts=2)
    made, heard = measuring(runner), list[int]()
    roofs = made.at_once(lambda probe, n_done: heard.append(n_done))
    assert runner.is_ended and heard == list(range(1, len(runner.asked) + 1))
    assert len(roofs.readings) == len(runner.asked) - 1 and roofs.curve == ((2**14, 5e10), (2**20, 2e10))
    assert roofs.read_bytes_per_s == max(k + 1 for k, each in enumerate(runner.asked) if each.what == "read") * GB
    assert roofs.readings[0].rate == 1 * GB and roofs.readings[0].low == 0.9 * GB


def test_of_several_tries_the_best_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What disturbs a probe only makes it slower."""
    used = others_use(monkeypatch)
    used[:] = [0.0, 9.0, 9.0, 18.0, 18.0, 27.0]

    class Tired(FakeRunner):
        def run(self, probe: Probe) -> dict[str, Any] | None:
            answer = super().run(probe)
            return answer and {**answer, "rate": 10 * GB - answer["rate"]}

    made = Measuring(MACHINE, [SMALL], None, Tired())
    roofs = made.at_once()
    assert roofs.readings[0].disturbed and roofs.readings[0].rate == 9 * GB


def test_cancelled_it_leaves_no_record() -> None:
    engine, runner = Engine(lambda: MANY_BYTES), FakeRunner()
    try:
        made = measuring(runner)
        made.measurement.cancel()
        engine.measure(made.measurement)
        assert values(made.measurement) == [] and made.roofs() is None and runner.is_ended
    finally:
        engine.stop()


def test_a_probe_that_fails_ends_it_with_its_sentence() -> None:
    runner = FakeRunner(fails=Refusal("roofs.probe_failed", roof="curve", kernel="sum", status=1))
    with pytest.raises(Refusal, match="curve, sum"):
        measuring(runner).at_once()
    assert runner.is_ended


# --- processes


def run(processes: Processes, probe: Probe = SMALL) -> dict[str, Any] | None:
    """What the exclusive slot does: asks again while it starts."""
    while True:
        try:
            return processes.run(probe)
        except NotYet:
            continue


def script(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """What is started instead of a probe."""
    monkeypatch.setattr(processes_module, "command", lambda probe: [sys.executable, "-c", code])


def test_a_real_probe_in_a_process_of_its_own() -> None:
    processes = Processes()
    answer = run(processes)
    assert answer is not None and 1e8 < answer["low"] <= answer["rate"] <= answer["high"] < 1e14
    assert answer["n_repeats"] >= 7 and processes.used_seconds() > 0


def test_its_threads_are_those_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, "import os; print('ready'); input(); print('{\"n\":' + os.environ['OMP_NUM_THREADS'] + '}')")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert run(Processes(), Probe("read", "sum", "f32", 3, "cpu", 1)) == {"n": 3}
    assert "--threads" in command(SMALL) and os.environ["OMP_NUM_THREADS"] == "7"


def test_while_it_starts_the_engine_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, "import time; time.sleep(0.6); print('ready'); input(); print('{}')")
    monkeypatch.setattr(processes_module, "PATIENCE_SECONDS", 0.01)
    processes, waits = Processes(), 0
    while True:
        try:
            assert processes.run(SMALL) == {}
            break
        except NotYet:
            waits += 1
    assert waits > 5


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('ready'); input(); raise SystemExit(3)"])
def test_a_process_that_fails_is_a_refusal(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    script(monkeypatch, code)
    with pytest.raises(Refusal) as refused:
        run(Processes())
    assert refused.value.key == "roofs.probe_failed" and refused.value.values["status"] == 3


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "print('ready', flush=True); import time; time.sleep(60)"]
)
def test_a_process_that_hangs_is_ended_and_refused(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    script(monkeypatch, code)
    processes = Processes(most_seconds=0.4)
    with pytest.raises(Refusal) as refused:
        run(processes)
    assert refused.value.key == "roofs.probe_hangs" and processes._child is None


@pytest.mark.parametrize("is_ready", [False, True])
def test_ended_its_process_is_gone_at_once(monkeypatch: pytest.MonkeyPatch, is_ready: bool) -> None:
    said = "print('ready', flush=True);" if is_ready else ""
    script(monkeypatch, f"{said} import time; time.sleep(60)")
    engine = Engine(lambda: MANY_BYTES)
    try:
        processes = Processes()
        made = Measuring(MACHINE, [SMALL, SMALL], None, processes)
        engine.measure(made.measurement)
        wait_until(lambda: processes._child is not None)
        child = processes._child
        assert child is not None
        made.measurement.cancel()
        made.measurement.future.result(PATIENCE)
        assert child.process.returncode is not None and made.roofs() is None
        assert processes.run(SMALL) is None, "a further one began"
    finally:
        engine.stop()


# --- whose the cores are


def test_what_a_process_of_its_own_uses_is_no_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same point with the same load: told that it is its own, the measurement is quiet."""
    for own, n_tries, disturbed in ((0.0, 3, True), (1.0, 1, False), (0.5, 3, True)):
        used, spent = others_use(monkeypatch), [0.0]
        slot = ExclusiveSlot(Residents(lambda: 0))

        def point(spent: list[float] = spent, own: float = own) -> None:
            spent[0] += own

        used[:] = [0.0, 1.0, 1.0, 2.0, 2.0, 3.0]
        measurement = Measurement("m", [point], own_seconds=lambda spent=spent: spent[0])  # type: ignore[misc]
        slot.add(measurement)
        while slot:
            slot.step(others_wait=False)
        assert (measurement.done[0].n_tries, measurement.done[0].disturbed) == (n_tries, disturbed)


def test_the_cores_of_a_process_are_counted_while_it_lives_and_when_it_has_ended() -> None:
    before = used_by_processes([])
    busy = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass\nprint(1, flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert busy.stdout is not None and busy.stdout.readline()
    if Path("/proc/self/stat").exists():
        assert used_by_processes([busy.pid]) - before >= 0.3
    busy.communicate("\n")
    assert used_by_processes([]) - before >= 0.3
    assert used_by_processes([busy.pid]) - before >= 0.3, "one that has just ended is no failure"


def test_a_point_that_is_not_ready_is_asked_again_and_others_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive_module, "OTHERS_SECONDS", PATIENCE)
    slot, calls = ExclusiveSlot(Residents(lambda: 0)), list[int]()

    def point() -> int:
        calls.append(1)
        if len(calls) < 5:
            raise NotYet
        return len(calls)

    measurement = Measurement("m", [point])
    slot.add(measurement)
    slot.step(others_wait=True)
    slot.step(others_wait=True)
    assert len(calls) == 1, "the others were not served"
    while slot:
        slot.step(others_wait=False)
    assert measurement.done[0].value == 5 and measurement.done[0].n_tries == 1


def test_cancelling_tells_whoever_has_something_to_end() -> None:
    told = threading.Event()
    Measurement("m", [], on_cancel=told.set).cancel()
    assert told.is_set()
