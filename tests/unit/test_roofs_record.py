"""The record of roofs: what is the best reading, the way to JSON and back, the file, and whatever may stand in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lab.roofs import kept as kept_module
from core.lab.roofs.as_json import from_json, to_json
from core.lab.roofs.kept import cache_folder, file_of, keep, kept_roofs
from core.lab.roofs.machine import caches, processor_name, this_machine
from core.lab.roofs.probes import block_bytes, thread_counts
from core.lab.roofs.record import Cache
from core.refusal import Refusal
from tests.roofs import GB, MACHINE, reading, roofs_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TBT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_module, "_unwritten", {})
    return tmp_path / "cache"


def test_a_roof_is_its_best_reading() -> None:
    roofs = roofs_of()
    assert (roofs.read_bytes_per_s, roofs.copy_bytes_per_s) == (20 * GB, 15 * GB)
    assert [roofs.peak_flops(name) for name in ("f32", "bf16", "f16")] == [100 * GB, 200 * GB, None]
    best = roofs.best("product", "f32")
    assert best is not None and (best.kernel, best.n_threads) == ("plain", 2)


def test_a_floor_is_the_longer_of_computing_and_reading() -> None:
    roofs = roofs_of()
    memory, compute = roofs.floor(10 * GB, 4 * GB, "f32"), roofs.floor(100 * GB, 4 * GB, "f32")
    assert memory is not None and (memory.seconds, memory.bound) == (0.2, "memory")
    assert compute is not None and (compute.seconds, compute.bound) == (1.0, "compute")
    assert roofs.floor(1.0, 1.0, "f16") is None


@given(
    st.lists(
        st.tuples(st.floats(10, 1e17), st.sampled_from(["f32", "bf16", "f16"]), st.sampled_from([None, True, False])),
        max_size=6,
    ),
    st.booleans(),
)
def test_json_and_back(more: list[tuple[float, str, bool | None]], caches_known: bool) -> None:
    roofs = roofs_of()
    added = tuple(reading("product", rate, dtype, disturbed=disturbed) for rate, dtype, disturbed in more)
    roofs = replace(roofs, readings=roofs.readings + added, caches=roofs.caches if caches_known else None)
    assert from_json(json.loads(json.dumps(to_json(roofs)))) == roofs


def test_the_fixed_form() -> None:
    said = to_json(roofs_of(caches=None))
    assert list(said) == [
        *("form", "measured_at", "machine", "read_bytes_per_s", "copy_bytes_per_s", "peak_flops", "block_bytes"),
        *("caches", "readings", "curve"),
    ]
    assert said["peak_flops"] == {"f32": 100 * GB, "bf16": 200 * GB, "f16": None} and said["caches"] is None
    assert list(said["machine"]) == ["processor", "n_cores", "n_threads", "torch", "device", "device_name"]
    assert list(said["readings"][0]) == [
        *("roof", "kernel", "dtype", "n_threads", "rate", "low", "high", "n_repeats", "disturbed"),
    ]
    assert said["curve"][0] == {"block_bytes": 2**14, "bytes_per_s": 90 * GB}


def changed(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Puts a value at "readings.0.rate"."""

    def change(said: Any) -> None:
        *way, last = [int(name) if name.isdecimal() else name for name in place.split(".")]
        for name in way:
            said = said[name]
        said[last] = value

    return change


BROKEN = {
    "another form": changed("form", 2),
    "no date": changed("measured_at", "yesterday"),
    "a rate of nothing": changed("readings.0.rate", 0),
    "a rate below its quartile": changed("readings.1.rate", 1 * GB),
    "a rate that is a text": changed("readings.0.rate", "fast"),
    "an unknown roof": changed("readings.0.roof", "floor"),
    "an unknown kernel": changed("readings.0.kernel", "magic"),
    "an unknown dtype": changed("readings.0.dtype", "f8"),
    "no reading of memory": lambda said: said.update(readings=said["readings"][3:]),
    "no readings": lambda said: said.pop("readings"),
    "a machine that is none": changed("machine", "fast"),
    "caches that hold nothing": changed("caches.0.n_bytes", 0),
    "a curve of texts": changed("curve", ["a"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_record_is_refused_and_in_a_file_ignored(name: str) -> None:
    said = to_json(roofs_of())
    BROKEN[name](said)
    with pytest.raises(Refusal):
        from_json(said)
    assert keep(roofs_of()) and kept_roofs(MACHINE) == roofs_of()
    file_of(MACHINE).write_text(json.dumps(said), encoding="utf-8")
    assert kept_roofs(MACHINE) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"NaN", b"[" * 100_000, b'{"form": 1}'])
def test_a_broken_file_is_ignored_and_replaced(content: bytes) -> None:
    file_of(MACHINE).parent.mkdir(parents=True)
    file_of(MACHINE).write_bytes(content)
    assert kept_roofs(MACHINE) is None
    assert keep(roofs_of()) and kept_roofs(MACHINE) == roofs_of()


def test_kept_is_the_newest_and_nothing_else_lies_there(folder: Path) -> None:
    later = roofs_of(measured_at="2026-01-01T00:00:00+00:00")
    assert kept_roofs(MACHINE) is None
    assert keep(roofs_of()) and keep(later)
    assert kept_roofs(MACHINE) == later
    assert [file.name for file in folder.iterdir()] == [file_of(MACHINE).name]


def test_another_machine_has_other_roofs() -> None:
    assert keep(roofs_of())
    for change in ({"n_threads": 1}, {"torch": "2.1"}, {"device": "cuda:0"}, {"processor": "B"}, {"device_name": "C"}):
        other = replace(MACHINE, **change)
        assert file_of(other) != file_of(MACHINE) and kept_roofs(other) is None
        file_of(other).write_bytes(file_of(MACHINE).read_bytes())  # copied from there by hand
        assert kept_roofs(other) is None


def test_where_nothing_can_be_written_they_hold_for_this_process(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    assert not keep(roofs_of()) and kept_roofs(MACHINE) == roofs_of()
    folder.unlink()
    later = roofs_of(measured_at="2026-01-01T00:00:00+00:00")
    assert keep(later) and kept_roofs(MACHINE) == later


def test_a_write_that_fails_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(roofs_of())

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    assert not keep(roofs_of(measured_at="2026-01-01T00:00:00+00:00"))
    assert [file.name for file in folder.iterdir()] == [file_of(MACHINE).name]
    assert from_json(json.loads(file_of(MACHINE).read_bytes())) == roofs_of()


def test_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == Path(os.environ["TBT_CACHE"])
    monkeypatch.delenv("TBT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/token-by-token")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == Path("~/.cache/token-by-token")


# --- the machine


def described(folder: Path, core: int, index: int, level: str, kind: str, size: str, shared: str) -> None:
    place = folder / f"cpu{core}" / "cache" / f"index{index}"
    place.mkdir(parents=True)
    for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (place / name).write_text(f"{text}\n")


def test_a_shared_cache_counts_once(tmp_path: Path) -> None:
    for core in range(2):
        described(tmp_path, core, 0, "1", "Data", "32K", str(core))
        described(tmp_path, core, 1, "1", "Instruction", "64K", str(core))
        described(tmp_path, core, 2, "3", "Unified", "16M", "0-1")
        described(tmp_path, core, 3, "x", "Unified", "16M", "0-1")
        described(tmp_path, core, 4, "4", "Unified", "0K", "0-1")
    (tmp_path / "cpufreq").mkdir()
    assert caches(tmp_path) == (
        Cache(1, "Data", 32 * 2**10, 2),
        Cache(1, "Instruction", 64 * 2**10, 2),
        Cache(3, "Unified", 16 * 2**20, 1),
    )


def test_without_a_description_nothing_is_said(tmp_path: Path) -> None:
    assert caches(tmp_path) is None and caches(tmp_path / "nowhere") is None


def test_the_processors_name(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A: fast one\nmodel name\t: B\n")
    assert processor_name(file) == "A: fast one"
    assert processor_name(tmp_path / "nowhere")


def test_this_machine_is_named() -> None:
    machine = this_machine()
    assert machine.n_threads >= 1 and machine.processor and machine.torch and machine.device_name


@pytest.mark.parametrize(("n", "counts"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (16, (1, 2, 4, 8, 16))])
def test_thread_counts(n: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(n) == counts


def test_a_block_is_far_larger_than_the_last_cache_and_leaves_memory_for_others() -> None:
    def of(last: int, free: int | None = None, *, on_cpu: bool = True) -> int:
        return block_bytes([Cache(3, "Unified", last, 1), Cache(1, "Instruction", 2**33, 1)], free, on_cpu=on_cpu)

    mib = 2**20
    assert of(8 * mib) == 128 * mib and of(64 * mib) == 256 * mib and of(2**30) == 2**30
    assert block_bytes(None, None, on_cpu=True) == 128 * mib
    assert of(8 * mib, 2**29) == 2**26 and of(8 * mib, on_cpu=False) == 2**30
