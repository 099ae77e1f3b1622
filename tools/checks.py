"""`make test`: the linter, the formatter, the type checker and all tests; each runs, whatever the others say."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import chromium

BEFORE_THE_TESTS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
}
# In a clean checkout it keeps one core busy for one or two minutes, while the tests' processes are still being started.
BESIDE_THE_TESTS = ("mypy",)
# Three at once: two wait for browsers most of their time, the third computes and steps back for them. tests/conftest.py
# says what stays together.
TESTS = ("pytest", "-n", "3", "--dist", "loadscope", "--no-loadscope-reorder")
FAILED = 2


def check(python: Path, root: Path) -> int:
    """Runs everything, the tests last, and says what failed after their closing line."""
    browser = chromium.find_or_install(python)
    failed = [name for name, arguments in BEFORE_THE_TESTS.items() if _status(python, root, arguments)]
    tests = TESTS if browser else (*TESTS, "-m", "not browser")
    with _beside(python, root, BESIDE_THE_TESTS) as types:
        status = _status(python, root, tests, {"TBT_CHROMIUM": browser})
    failed += ["mypy"] if types.returncode else []

    if failed:
        _complain(f"{', '.join(failed)} failed: what it found is printed above.")
    if not browser:
        _complain(chromium.HOW_TO_GET_ONE)
    return status or (FAILED if failed or not browser else 0)


@contextmanager
def _beside(python: Path, root: Path, arguments: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs it while other things run, which come first; at the end waits for it, and prints what it said."""
    with tempfile.TemporaryFile() as said:
        command = ["nice", str(python), "-m", *arguments]
        process = subprocess.Popen(command, cwd=root, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield process
        except BaseException:
            process.terminate()
            raise
        finally:
            process.wait()
        said.seek(0)
        sys.stdout.write(said.read().decode(errors="replace"))
        sys.stdout.flush()


def _status(python: Path, root: Path, arguments: tuple[str, ...], settings: dict[str, str] | None = None) -> int:
    command = [str(python), "-m", *arguments]
    return subprocess.run(command, cwd=root, env={**os.environ, **(settings or {})}).returncode


def _complain(sentence: str) -> None:
    print(f"make test: {sentence}", file=sys.stderr, flush=True)
