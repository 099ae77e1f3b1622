"""What decode passes took, by the number of runs in them: measured as people come and go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from threading import Lock

from core.engine.status import BatchPoint, ModelStatus
from core.model.load import LanguageModel

KEPT_PASSES = 32
KEPT_LATELY = 1024
FRESH_SECONDS = 2.0
RATE_SECONDS = 4.0


@dataclass(slots=True)
class _Meter:
    """One model's passes."""

    weight_bytes: int
    seconds: dict[int, deque[float]] = field(default_factory=dict)  # by batch, the last ones
    n_passes: dict[int, int] = field(default_factory=dict)
    lately: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT_LATELY))  # when, how many runs
    newest_seconds: float = 0.0


class Meters:
    """Written by the engine's thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._meters: dict[str, _Meter] = {}
        self._lock = Lock()

    def decoded(self, model: LanguageModel, batch: int, seconds: float) -> None:
        """A pass of `batch` runs took so long, sampling and recording included."""
        with self._lock:
            meter = self._meters.get(model.name)
            if meter is None:
                meter = self._meters[model.name] = _Meter(model.transformer.product_bytes)
            meter.seconds.setdefault(batch, deque(maxlen=KEPT_PASSES)).append(seconds)
            meter.n_passes[batch] = meter.n_passes.get(batch, 0) + 1
            meter.lately.append((self._clock(), batch))
            meter.newest_seconds = seconds

    def status(self) -> tuple[ModelStatus, ...]:
        """Every model that has decoded something."""
        with self._lock:
            return tuple(self._model(name, meter) for name, meter in self._meters.items())

    def _model(self, name: str, meter: _Meter) -> ModelStatus:
        now = self._clock()
        last_at, last_batch = meter.lately[-1]
        tokens = sum(batch for at, batch in meter.lately if now - at < RATE_SECONDS)
        # Passes so fast that not all of the last seconds were kept are judged by those that were.
        seconds = min(RATE_SECONDS, now - meter.lately[0][0]) if len(meter.lately) == KEPT_LATELY else RATE_SECONDS
        points = {batch: median(seconds) for batch, seconds in meter.seconds.items()}
        return ModelStatus(
            model=name,
            batch=last_batch if now - last_at < FRESH_SECONDS else 0,
            step_s=meter.newest_seconds,
            tokens_per_s=tokens / seconds if seconds else 0.0,
            weight_bytes=meter.weight_bytes,
            by_batch=tuple(
                BatchPoint(batch=batch, n_passes=meter.n_passes[batch], step_s=step_s, tokens_per_s=batch / step_s)
                for batch, step_s in sorted(points.items())
            ),
        )
