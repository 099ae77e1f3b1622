"""Probes in processes of their own: begun, waited for while they start, told to measure, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from core.engine.exclusive import NotYet, used_by_processes
from core.lab.roofs.probes import Probe
from core.refusal import Refusal

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 0.25
"""How long the engine waits at a time for a process that starts; in between it serves others."""
MOST_SECONDS = 60
"""A probe takes two on a quiet machine; one that is not done by then hangs."""
# Weights lie in large pages where the server was started by `make run`; a roof is what the machine can do at best.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Runner(Protocol):
    """Runs probes, one at a time."""

    def run(self, probe: Probe) -> dict[str, Any] | None:
        """What the probe printed; None after `end`. Raises NotYet while it starts, Refusal for one that failed."""

    def end(self) -> None:
        """Ends the one under way, from any thread, and lets no further one begin."""

    def used_seconds(self) -> float:
        """What its processes have used of the cores so far."""


class Processes:
    """Runs each probe in a fresh process."""

    def __init__(self, most_seconds: float = MOST_SECONDS) -> None:
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._ended = threading.Event()

    def run(self, probe: Probe) -> dict[str, Any] | None:
        """See `Runner`. A probe that does not come to its end is refused as well."""
        child = self._child_for(probe)
        if child is None:
            return None
        if not child.is_ready.wait(PATIENCE_SECONDS) and child.age_seconds < self._most_seconds:
            raise NotYet
        try:
            printed, _ = child.process.communicate("\n", timeout=max(0.0, self._most_seconds - child.age_seconds))
        except subprocess.TimeoutExpired:
            raise Refusal("roofs.probe_hangs", seconds=self._most_seconds, **_named(probe)) from None
        finally:
            self._let_go(child)
        if self._ended.is_set():
            return None
        if child.process.returncode:
            raise Refusal("roofs.probe_failed", status=child.process.returncode, **_named(probe))
        answer: dict[str, Any] = json.loads(printed)
        return answer

    def end(self) -> None:
        """See `Runner`."""
        with self._lock:
            self._ended.set()
            if self._child is not None:
                self._child.process.kill()
                self._child.process.wait()

    def used_seconds(self) -> float:
        """See `Runner`."""
        child = self._child
        return used_by_processes([] if child is None else [child.process.pid])

    def _child_for(self, probe: Probe) -> Child | None:
        with self._lock:
            if self._child is None and not self._ended.is_set():
                self._child = Child(probe)
            return self._child

    def _let_go(self, child: Child) -> None:
        child.process.kill()
        child.process.communicate()
        with self._lock:
            self._child = None


class Child:
    """A process that prepares a probe. `is_ready`: it has said so, or has ended before."""

    def __init__(self, probe: Probe) -> None:
        self._began = time.monotonic()
        self.is_ready = threading.Event()
        self.process = subprocess.Popen(
            command(probe),
            cwd=ROOT,
            env=LARGE_PAGES | os.environ | dict.fromkeys(THREAD_SETTINGS, str(probe.n_threads)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._listen, name="probe-listener", daemon=True).start()

    @property
    def age_seconds(self) -> float:
        """Since when it is there."""
        return time.monotonic() - self._began

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.is_ready.set()


def command(probe: Probe) -> list[str]:
    """What is started for a probe."""
    options = ["--threads", str(probe.n_threads), "--device", probe.device, "--block-bytes", str(probe.block_bytes)]
    works = [probe.what, probe.kernel, probe.dtype]
    return [sys.executable, "-m", "core.lab.roofs.probe", *works, *options, "--when-told"]


def _named(probe: Probe) -> dict[str, str]:
    return {"roof": probe.what, "kernel": probe.kernel}
