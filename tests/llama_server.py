"""llama.cpp's own server on loopback, holding a GGUF file: `python -m tests.llama_server FILE PORT`, until stdin ends.

It is the C++ server of llama.cpp, as the xllamacpp wheel packs it: it knows nothing of this code.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
SLOTS, TOKENS_A_SLOT = 4, 512
STARTS_WITHIN_S = 120


class LlamaServer:
    """The server in a process of its own; a context manager. `port`: one that is free, if not this one."""

    def __init__(self, file: Path, port: int | None = None) -> None:
        self._command = [sys.executable, "-m", "tests.llama_server", str(file), str(port or free_port())]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.port = int(self.url.rsplit(":", 1)[1])
        until = time.monotonic() + STARTS_WITHIN_S
        while not self._is_well():
            assert time.monotonic() < until and self._process.poll() is None
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.kill()
        self._process.communicate()

    def _is_well(self) -> bool:
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False


def serve(file: str, port: int) -> None:
    """Serves until stdin ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = file
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * TOKENS_A_SLOT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics, params.warmup = True, False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
