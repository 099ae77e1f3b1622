"""The seam to the hardware: a clock that waits for the device, and names that are checked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from core.model import device as device_module
from core.model.device import DTYPE_NAMES, DTYPES, Device, Stopwatch, choose_device, choose_dtype
from core.refusal import Refusal

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class QueueingDevice(Device):
    """A device whose work is queued: waiting for it takes 50 ms."""

    def synchronize(self) -> None:
        time.sleep(0.05)


def test_the_stopwatch_waits_for_the_device() -> None:
    """A18: work that was only queued is timed until it is done."""
    began = time.perf_counter()
    with Stopwatch(QueueingDevice(CUDA)) as watch:
        pass
    assert 0.05 <= watch.seconds <= time.perf_counter() - began - 0.05, "the first wait is not the work's"


def test_work_queued_before_is_not_counted() -> None:
    happened: list[str] = []

    class Logging(Device):
        def synchronize(self) -> None:
            happened.append("wait")

    ticks = iter([10.0, 12.5])

    def clock() -> float:
        happened.append("clock")
        return next(ticks)

    with Stopwatch(Logging(CUDA), clock=clock) as watch:
        happened.append("work")
    assert happened == ["wait", "clock", "work", "wait", "clock"]
    assert watch.seconds == 2.5


def test_a_stopwatch_reads_the_time_of_a_failure_too() -> None:
    with pytest.raises(RuntimeError), Stopwatch(QueueingDevice(CUDA)) as watch:
        raise RuntimeError("half-way")
    assert watch.seconds >= 0.05


class NoCalls:
    """Stands for torch.cuda or torch.mps where nothing may be asked of them."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a CPU run asked the device for {name}")


def test_a_cpu_makes_no_device_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", NoCalls())
    monkeypatch.setattr(torch, "mps", NoCalls())
    cpu = Device(CPU)
    with Stopwatch(cpu) as watch:
        cpu.reset_peak_memory()
        assert cpu.peak_memory_bytes() is None and cpu.kind == "cpu"
        free = cpu.free_memory_bytes()
        assert free is None or 2**20 < free < 2**50
    assert watch.seconds >= 0


class PretendedCuda:
    """torch.cuda of a machine with so many cards."""

    def __init__(self, n_devices: int, *, bf16: bool = True) -> None:
        self.n_devices, self.bf16, self.calls = n_devices, bf16, list[tuple[str, object]]()

    def is_available(self) -> bool:
        return self.n_devices > 0

    def device_count(self) -> int:
        return self.n_devices

    def is_bf16_supported(self) -> bool:
        return self.bf16

    def synchronize(self, device: object = None) -> None:
        self.calls.append(("synchronize", device))

    def reset_peak_memory_stats(self, device: object = None) -> None:
        self.calls.append(("reset", device))

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        self.calls.append(("free", device))
        return 777, 1000

    def max_memory_allocated(self, device: object = None) -> int:
        self.calls.append(("peak", device))
        return 12345


def with_hardware(
    monkeypatch: pytest.MonkeyPatch, n_cuda: int = 0, *, mps: bool = False, bf16: bool = True
) -> PretendedCuda:
    cuda = PretendedCuda(n_cuda, bf16=bf16)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    return cuda


@pytest.mark.parametrize(
    ("n_cuda", "mps", "chosen"), [(1, False, "cuda"), (2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_the_best_device_there_is(monkeypatch: pytest.MonkeyPatch, n_cuda: int, mps: bool, chosen: str) -> None:
    with_hardware(monkeypatch, n_cuda, mps=mps)
    assert choose_device() == choose_device(None) == Device(torch.device(chosen))


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1", "mps"])
def test_a_device_that_is_there_is_taken_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with_hardware(monkeypatch, 2, mps=True)
    assert choose_device(name).torch_device == torch.device(name)


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "cuda:x", "cuda:-1", "cuda:²", "cpu ", "meta", "xpu", "x" * 500])
def test_unknown_devices_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with_hardware(monkeypatch, 2, mps=True)
    with pytest.raises(Refusal) as caught:
        choose_device(name)
    assert caught.value.key == "engine.device_unknown" and len(str(caught.value)) < 150


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:2", "mps", "cpu:0", "mps:0"])
def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with_hardware(monkeypatch, 2 if name == "cuda:2" else 0, mps=name == "mps:0")
    with pytest.raises(Refusal) as caught:
        choose_device(name)
    assert caught.value.key == "engine.device_missing" and name in str(caught.value)


def test_on_cuda_the_card_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = with_hardware(monkeypatch, 2)
    chosen = choose_device("cuda:1")
    with Stopwatch(chosen):
        pass
    chosen.reset_peak_memory()
    assert chosen.peak_memory_bytes() == 12345 and chosen.free_memory_bytes() == 777
    card = torch.device("cuda:1")
    assert cuda.calls == [(name, card) for name in ("synchronize", "synchronize", "reset", "peak", "free")]


class PretendedEvent:
    """A mark in a queue whose work took 250 ms."""

    happened: list[str]

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.happened.append("mark")

    def synchronize(self) -> None:
        self.happened.append("wait")

    def elapsed_time(self, later: object) -> float:
        return 250.0 if later is not self else -1.0


def test_on_cuda_work_is_timed_by_events_of_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A18: a mark before the work and one behind it; the second is waited for before it is read."""
    cuda, happened = with_hardware(monkeypatch, 2), list[str]()
    PretendedEvent.happened = happened

    @contextmanager
    def on(device: object) -> Iterator[None]:
        happened.append(str(device))
        yield
        happened.append("left")

    cuda.Event, cuda.device = PretendedEvent, on  # type: ignore[attr-defined]
    card = choose_device("cuda:1")
    assert card.seconds_of(lambda: happened.append("work")) == 0.25
    assert happened == ["cuda:1", "mark", "work", "mark", "wait", "left"]
    assert not cuda.calls, "the whole card was waited for"


def test_elsewhere_work_is_timed_by_the_clock() -> None:
    """A18."""
    began = time.perf_counter()
    seconds = QueueingDevice(CPU).seconds_of(lambda: None)
    assert 0.05 <= seconds <= time.perf_counter() - began - 0.05


def test_a_device_says_its_name_and_what_it_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Device(CPU).name() == "" and Device(torch.device("mps")).name() == "MPS"
    assert all(Device(CPU).multiplies(dtype) for dtype in DTYPES.values())
    assert not Device(torch.device("meta")).multiplies(torch.float32), "nothing comes of a device without contents"
    cuda = with_hardware(monkeypatch, 1)
    cuda.get_device_name = lambda device: f"card {device}"  # type: ignore[attr-defined]
    assert choose_device("cuda").name() == "card cuda"


def test_dtypes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, dtype in {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}.items():
        assert choose_dtype(Device(CPU), name) == choose_dtype(Device(CUDA), name) == dtype
        assert DTYPES[name] == dtype and DTYPE_NAMES[dtype] == name
    for name in ("", "fp16", "F32", "float32", "int8", "f64", "y" * 500):
        with pytest.raises(Refusal) as caught:
            choose_dtype(Device(CPU), name)
        assert caught.value.key == "engine.dtype_unknown"
        assert len(str(caught.value)) < 150 and "f32, bf16, f16" in str(caught.value)


def test_dtypes_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with_hardware(monkeypatch, 1)
    assert choose_dtype(Device(CUDA)) == torch.bfloat16
    with_hardware(monkeypatch, 1, bf16=False)
    assert choose_dtype(Device(CUDA)) == torch.float16
    assert choose_dtype(Device(torch.device("mps"))) == torch.float16
    for has_half, expected in ((True, torch.float16), (False, torch.float32)):
        monkeypatch.setattr(device_module, "has_half_product", lambda has_half=has_half: has_half)
        assert choose_dtype(Device(CPU)) == expected
