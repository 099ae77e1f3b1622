"""A Chromium for the browser tests: one that is installed, else one installed now, else none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET_ONE = (
    "there is no Chromium, so the browser tests did not run: install one (Debian: apt install chromium "
    "fonts-noto-cjk; elsewhere: .venv/bin/python -m playwright install chromium), then run make test again."
)
APT = ("apt-get", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20")
WHERE_PLAYWRIGHT_KEEPS_IT = (
    "from playwright.sync_api import sync_playwright\n"
    "with sync_playwright() as playwright: print(playwright.chromium.executable_path)"
)


def find_or_install(python: Path) -> str:
    """The path of a Chromium that starts, or "". `python` is the environment's, which has playwright."""
    return installed() or _of_playwright(python) or _from_debian() or _from_playwright(python)


def installed() -> str:
    """The one the person names in TBT_CHROMIUM, or one on PATH."""
    for name in (os.environ.get("TBT_CHROMIUM", ""), *NAMES):
        path = shutil.which(name) if name else None
        if path and _starts(path):
            return path
    return ""


def _from_debian() -> str:
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        return ""
    print("Installing Debian's chromium and fonts-noto-cjk for the browser tests (once) ...", flush=True)
    if _succeeds([*APT, "update"], seconds=120):
        _succeeds([*APT, "install", "-y", "chromium", "fonts-noto-cjk"], seconds=480)
    return installed()


def _from_playwright(python: Path) -> str:
    print("Installing playwright's Chromium for the browser tests (once) ...", flush=True)
    _succeeds([str(python), "-m", "playwright", "install", "chromium"], seconds=480)
    return _of_playwright(python)


def _of_playwright(python: Path) -> str:
    done = subprocess.run([python, "-c", WHERE_PLAYWRIGHT_KEEPS_IT], capture_output=True, text=True)
    path = done.stdout.strip()
    return path if _starts(path) else ""


def _starts(path: str) -> bool:
    """Ubuntu's chromium-browser, for one, is a script that only says where to get the real one."""
    return bool(path) and _succeeds([path, "--version"], seconds=60)


def _succeeds(command: Sequence[str], *, seconds: float) -> bool:
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=quietly, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
