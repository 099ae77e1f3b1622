"""`python -m core roofs`: what this machine reads, copies and multiplies at most; measured once and kept."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.words import sentence

if TYPE_CHECKING:
    from core.lab.roofs.probes import Probe
    from core.lab.roofs.processes import Runner
    from core.lab.roofs.record import Reading, Roofs

_SCALE = {"read": ("GB/s", 1e9), "copy": ("GB/s", 1e9), "product": ("GFLOP/s", 1e9)}


def roofs_command(arguments: argparse.Namespace, runner: Runner | None = None) -> None:
    """Prints the roofs that are kept, or measures and keeps them. Raises Refusal with the reason.

    Each probe is reported on stderr while it lasts, unless JSON was asked for. `runner`: what probes run in, if not in
    processes of their own.
    """
    # Only now: the arguments are good, and torch takes seconds to import.
    from core.lab.roofs.as_json import to_json
    from core.lab.roofs.kept import cache_folder, keep, kept_roofs
    from core.lab.roofs.measure import measuring

    roofs = None if arguments.again else kept_roofs()
    if roofs is None:
        made = measuring(runner)
        total = len(made.measurement.points)

        def report(probe: Probe, n_done: int) -> None:
            if not arguments.json:
                named = f"{probe.what} {probe.kernel} {probe.dtype}, threads {probe.n_threads}"
                print(f"{n_done}/{total} {named}", file=sys.stderr, flush=True)

        roofs = made.at_once(report)
        if not keep(roofs):
            print(sentence("roofs.not_kept", "en", folder=cache_folder()), file=sys.stderr)
    print(json.dumps(to_json(roofs)) if arguments.json else "\n".join(table(roofs)))


def table(roofs: Roofs) -> Iterator[str]:
    """The roofs for a reader: where and when, every reading with its spread, a star at the best of each kind."""
    machine = roofs.machine
    on = "" if machine.device == "cpu" else f", {machine.device} ({machine.device_name})"
    cores = f"{machine.n_threads} of {machine.n_cores} cores"
    yield f"{machine.processor}, {cores}{on}, torch {machine.torch}; measured {roofs.measured_at}"
    for cache in roofs.caches or ():
        yield f"L{cache.level} {cache.kind.lower():<12} {cache.n_bytes // 1024:>8,} KiB × {cache.count}"
    heads = f"{'kernel':<8} {'dtype':<5} {'threads':>7} {'median':>10} {'middle half':>19}"
    yield f"\n  {'roof':<8} {heads}"
    for reading in roofs.readings:
        best = roofs.best(reading.roof, reading.dtype if reading.roof == "product" else None)
        yield f"{'*' if reading is best else ' '} {_line(reading)}"
    if roofs.curve:
        yield "\nread again and again by one thread:"
        yield from (f"{size // 1024:>10,} KiB {rate / 1e9:>8.1f} GB/s" for size, rate in roofs.curve)


def _line(reading: Reading) -> str:
    unit, scale = _SCALE[reading.roof]
    named = f"{reading.roof:<8} {reading.kernel:<8} {reading.dtype:<5} {reading.n_threads:>7}"
    spread = f"{reading.low / scale:>8,.1f} – {reading.high / scale:<8,.1f}"
    return f"{named} {reading.rate / scale:>10,.1f} {spread} {unit}{'  disturbed' if reading.disturbed else ''}"
