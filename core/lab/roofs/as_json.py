"""The record of roofs as JSON: what the command prints and what is kept in a file, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from core.engine.saved.fields import Entry, wrong
from core.lab.roofs.record import DTYPE_NAMES, KERNELS, ROOFS, Cache, Machine, Reading, Roofs

FORM = 1
"""Goes up with every change that makes an older file say something else."""
Name = TypeVar("Name", bound=str)
_LONGEST, _MOST_ENTRIES = 200, 1000


def to_json(roofs: Roofs) -> dict[str, Any]:
    """The fixed form of `python -m core roofs --json`: the roofs themselves first, then all that they are taken from.

    `caches` is null where the system does not describe them, a peak where no product of that dtype was measured.
    """
    return {
        "form": FORM,
        "measured_at": roofs.measured_at,
        "machine": asdict(roofs.machine),
        "read_bytes_per_s": roofs.read_bytes_per_s,
        "copy_bytes_per_s": roofs.copy_bytes_per_s,
        "peak_flops": {name: roofs.peak_flops(name) for name in DTYPE_NAMES},
        "block_bytes": roofs.block_bytes,
        "caches": None if roofs.caches is None else [asdict(cache) for cache in roofs.caches],
        "readings": [asdict(reading) for reading in roofs.readings],
        "curve": [{"block_bytes": n_bytes, "bytes_per_s": rate} for n_bytes, rate in roofs.curve],
    }


def from_json(value: object) -> Roofs:
    """The record of that JSON. Raises Refusal for what is not one, or one of another form."""
    entry = Entry(value)
    if entry.whole("form") != FORM:
        raise wrong("form")
    measured_at = entry.text("measured_at", longest=_LONGEST)
    try:
        datetime.fromisoformat(measured_at)
    except ValueError:
        raise wrong("measured_at") from None
    caches = None if entry.is_null("caches") else entry.entries("caches", at_most=_MOST_ENTRIES)
    roofs = Roofs(
        measured_at=measured_at,
        machine=_machine(entry.entry("machine")),
        block_bytes=entry.whole("block_bytes"),
        caches=None if caches is None else tuple(_cache(each) for each in caches),
        readings=tuple(_reading(each) for each in entry.entries("readings", at_most=_MOST_ENTRIES)),
        curve=tuple(
            (each.whole("block_bytes", least=1), each.number("bytes_per_s", least=1))
            for each in entry.entries("curve", at_most=_MOST_ENTRIES)
        ),
    )
    if any(roofs.best(roof) is None for roof in ROOFS):
        raise wrong("readings")
    return roofs


def _machine(entry: Entry) -> Machine:
    return Machine(
        processor=entry.text("processor", longest=_LONGEST),
        n_cores=entry.whole("n_cores", least=1),
        n_threads=entry.whole("n_threads", least=1),
        torch=entry.text("torch", longest=_LONGEST),
        device=entry.text("device", longest=_LONGEST),
        device_name=entry.text("device_name", longest=_LONGEST),
    )


def _cache(entry: Entry) -> Cache:
    return Cache(
        level=entry.whole("level", least=1),
        kind=entry.text("kind", longest=_LONGEST),
        n_bytes=entry.whole("n_bytes", least=1),
        count=entry.whole("count", least=1),
    )


def _reading(entry: Entry) -> Reading:
    low, rate, high = (entry.number(name, least=1, most=1e18) for name in ("low", "rate", "high"))
    if not low <= rate <= high:
        raise entry.wrong("rate")
    return Reading(
        roof=_one_of(entry, "roof", ROOFS),
        kernel=_one_of(entry, "kernel", KERNELS),
        dtype=_one_of(entry, "dtype", DTYPE_NAMES),
        n_threads=entry.whole("n_threads", least=1),
        rate=rate,
        low=low,
        high=high,
        n_repeats=entry.whole("n_repeats", least=1),
        disturbed=None if entry.is_null("disturbed") else entry.flag("disturbed"),
    )


def _one_of(entry: Entry, name: str, known: Sequence[Name]) -> Name:
    said = entry.text(name, longest=_LONGEST)
    found = next((each for each in known if each == said), None)
    if found is None:
        raise entry.wrong(name)
    return found
