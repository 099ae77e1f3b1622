"""`python -m core` in two ways: as a shell starts it, and the same call in this process, where torch is loaded."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from core.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
Done = subprocess.CompletedProcess[str]


def started(*arguments: str, **environment: str) -> Done:
    """In a process of its own: for what a process alone shows (encodings, what is imported, how it ends)."""
    return subprocess.run(
        [sys.executable, "-m", "core", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, **environment},
    )


def called(*arguments: str, **environment: str) -> Done:
    """In this process: the same status and the same words, without two seconds of the processor for torch's import."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        patch.object(sys, "argv", ["core", *arguments]),
        patch.dict(os.environ, environment),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            status = main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    output.seek(0)
    errors.seek(0)
    return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())
