"""The app as `make run` starts it, on a free loopback port, ended by its own process id."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """A running app: where it is, its process, and what it says."""

    address: str
    process_id: int
    log: Path

    @property
    def resident_bytes(self) -> int:
        """The memory its process holds now."""
        status = Path(f"/proc/{self.process_id}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


@contextmanager
def serving(folder: Path, script: str = "app.py", *, fails: bool = False) -> Iterator[Server]:
    """Starts the app, gives it when its models are loaded, and ends it.

    Its log, in `folder`, may hold no traceback, unless the app is one of a test's own that `fails`.
    """
    port = free_port()
    log = folder / "log"
    place = (f"--server.port={port}", "--server.address=127.0.0.1")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", script, *place],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        yield Server(f"http://127.0.0.1:{port}", process.pid, log)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert fails or "Traceback" not in log.read_text(), log.read_text()[-4000:]


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/api/ready", timeout=5) as answer:
                if json.load(answer)["ready"]:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise AssertionError(f"the server was not ready in time: {log.read_text()}")
