"""Freed memory goes back to the system where the C library can, and elsewhere nothing happens."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from pages.shared.memory import hand_back


def resident() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc")
def test_what_was_freed_below_something_that_stays_goes_back() -> None:
    blocks = [bytearray(4000) for _ in range(50_000)]  # 200 MB
    stays = blocks[-1]
    full = resident()
    del blocks
    hand_back()
    assert full - resident() > 100e6 and len(stays) == 4000


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    hand_back()
