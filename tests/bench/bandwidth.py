"""How fast this machine reads memory, by the simplest program that must read: a sum."""

from __future__ import annotations

import time
from statistics import median

import torch


class ReadBandwidth:
    """Collects readings over a run; its figure is their median."""

    def __init__(self, n_bytes: int = 256 * 2**20) -> None:
        self._numbers = torch.ones(n_bytes // 4)
        self._readings: list[float] = []

    def read_once(self, repeats: int = 5) -> None:
        """Sums the whole block a few times and keeps each rate."""
        for _ in range(repeats):
            started = time.perf_counter()
            self._numbers.sum()
            self._readings.append(self._numbers.nbytes / (time.perf_counter() - started))

    @property
    def bytes_per_s(self) -> float:
        """The median of all readings so far."""
        return median(self._readings)
