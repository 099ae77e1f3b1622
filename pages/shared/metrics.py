"""Figures for Prometheus: what the engine did since the server began, and how things stand when somebody looks.

What happens is counted in the engine's thread, in microseconds; what is, is read from the engine's status while the
answer is written. Labels are names of models, phases, batch sizes and keys of refusals: nothing of a visitor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from core.engine.status import Status
    from core.engine.trace import Phase

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Upper ends of the buckets that batch sizes are told in; beyond the last one it is "more"."""
STEP_SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30)
MOST_KINDS = 1000
"""Of model, phase and batch that are remembered with their counters; there are a few dozen."""


def batch_bucket(batch: int) -> str:
    """The bucket of a batch size: "1", "2", "3-4", "5-8" … "more"."""
    below = 0
    for most in BATCHES:
        if batch <= most:
            return str(most) if most - below == 1 else f"{below + 1}-{most}"
        below = most
    return "more"


class Metrics:
    """A `Listener` of the engine with a registry of its own; `text` is what a scrape gets."""

    def __init__(self, status: Callable[[], Status | None], sessions: Callable[[], int]) -> None:
        """`status` and `sessions` are asked at every scrape."""
        disable_created_metrics()  # a time of birth beside each counter would double what is sent
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(Standing(status, sessions))
        kind = ("model", "phase")
        self._tokens = self._counter("tokens", "Tokens produced.", *kind)
        self._positions = self._counter("positions", "Positions that went through the layers.", *kind)
        self._seconds = Histogram(
            "tbt_step_seconds",
            "Seconds of one pass of the engine, for all of its runs.",
            (*kind, "batch"),
            registry=self._registry,
            buckets=STEP_SECONDS,
        )
        self._failures = self._counter("step_failures", "Steps that failed.", "model")
        self._dropped = self._counter("caches_dropped", "Caches of resting runs that were given back.", "model")
        self._dropped_bytes = self._counter("caches_dropped_bytes", "Bytes of the caches given back.", "model")
        self._restarts = self._counter("engine_restarts", "Times the engine's thread died and was begun again.")
        self._refusals = self._counter("runs_refused", "Runs that were refused, by reason.", "reason")
        self._children: dict[tuple[str, str, int], tuple[Counter, Counter, Histogram]] = {}

    def stepped(self, model: str, phase: Phase, batch: int, seconds: float, n_tokens: int) -> None:
        """Every pass brings each of its runs one token."""
        kind = (model, str(phase), batch)
        children = self._children.get(kind)
        if children is None:
            children = (
                self._tokens.labels(model, phase),
                self._positions.labels(model, phase),
                self._seconds.labels(model, phase, batch_bucket(batch)),
            )
            if len(self._children) < MOST_KINDS:
                self._children[kind] = children
        tokens, positions, histogram = children
        tokens.inc(batch)
        positions.inc(n_tokens)
        histogram.observe(seconds)

    def failed(self, model: str, _error: BaseException) -> None:
        """Counts a step that failed."""
        self._failures.labels(model).inc()

    def dropped(self, model: str, held_bytes: int) -> None:
        """Counts a cache that was given back, and its bytes."""
        self._dropped.labels(model).inc()
        self._dropped_bytes.labels(model).inc(held_bytes)

    def restarted(self, _error: BaseException) -> None:
        """Counts a new beginning of the engine's thread."""
        self._restarts.inc()

    def refused(self, key: str) -> None:
        """Counts a run that was refused; `key` is the refusal's."""
        self._refusals.labels(key).inc()

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All figures in the text form that the `Accept` header asks for, and its content type."""
        write, content_type = choose_encoder(accept)
        return write(self._registry), content_type

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"tbt_{name}", meaning, labels, registry=self._registry)


class Standing(Collector):
    """How things stand at the moment of a scrape."""

    def __init__(self, status: Callable[[], Status | None], sessions: Callable[[], int]) -> None:
        self._status, self._sessions = status, sessions

    def collect(self) -> Iterator[Metric]:
        """The gauges; those of the engine are there from its first run on."""
        yield GaugeMetricFamily("tbt_sessions", "Visitors of the laboratory who are here.", self._sessions())
        status = self._status()
        if status is None:
            return
        yield GaugeMetricFamily("tbt_queue_runs", "Runs that wait for memory.", status.n_queued)
        yield GaugeMetricFamily("tbt_cache_budget_bytes", "What all caches may take.", status.budget_bytes)
        yield GaugeMetricFamily("tbt_cache_promised_bytes", "What they could still grow to.", status.promised_bytes)
        yield GaugeMetricFamily("tbt_cache_held_bytes", "What they take.", status.held_bytes)
        doing = GaugeMetricFamily("tbt_runs", "Runs in the engine, by what they are at.", labels=("model", "doing"))
        counts: dict[tuple[str, str], int] = {}
        for seat in status.seats:
            kind = (seat.model, str(seat.doing))
            counts[kind] = counts.get(kind, 0) + 1
        for kind, count in counts.items():
            doing.add_metric(kind, count)
        yield doing
        yield _by_model("tbt_batch_runs", "Runs in the newest decode pass.", status, lambda model: model.batch)
        yield _by_model("tbt_tokens_per_second", "Of all runs together.", status, lambda model: model.tokens_per_s)


def _by_model(name: str, meaning: str, status: Status, figure: Callable[..., float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=("model",))
    for model in status.models:
        family.add_metric((model.model,), figure(model))
    return family
