"""What Prometheus gets: text that parses, names with units, counts that go up, nothing of a visitor, and cheap."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from core.engine.status import Doing, ModelStatus, Seat, Status
from core.engine.trace import Phase
from pages.shared.keep import Keeper
from pages.shared.metrics import BATCHES, Metrics, batch_bucket
from pages.shared.started import Slot
from pages.shared.visit import Visit
from tests.pages.asking import client

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LABELS = {"model", "phase", "batch", "doing", "reason", "le"}


def seat(doing: Doing) -> Seat:
    return Seat(
        tag="a-visitor",
        model="tiny",
        doing=doing,
        n_tokens=9,
        n_prefix=0,
        kv_bytes=90,
        held_bytes=128,
        place=0,
        tokens_per_s=2.5,
    )


STATUS = Status(
    seats=(seat(Doing.DECODING), seat(Doing.DECODING), seat(Doing.QUEUED)),
    models=(ModelStatus(model="tiny", batch=2, step_s=0.01, tokens_per_s=200.0, weight_bytes=10, by_batch=()),),
    budget_bytes=1000,
    promised_bytes=600,
    held_bytes=384,
    n_queued=1,
    n_restarts=0,
    measuring=None,
)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: STATUS, lambda: 7)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and its labels' values in the order of their names."""
    text = metrics.text()[0].decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def happen(metrics: Metrics) -> None:
    """One of everything that an engine tells."""
    metrics.stepped("tiny", Phase.PREFILL, 1, 0.2, 30)
    for _ in range(3):
        metrics.stepped("tiny", Phase.DECODE, 6, 0.012, 6)
    metrics.stepped("tiny", Phase.RECOMPUTE, 1, 0.3, 31)
    metrics.failed("tiny", ValueError("what the visitor wrote"))
    metrics.dropped("tiny", 4096)
    metrics.restarted(RuntimeError("what the visitor wrote"))
    metrics.refused("engine.prompt_empty")


def test_counts_go_up_with_what_happens(metrics: Metrics) -> None:
    happen(metrics)
    once, n_decoded = samples(metrics), 18
    assert once["tbt_tokens_total", ("tiny", "decode")] == n_decoded
    assert once["tbt_tokens_total", ("tiny", "prefill")] == once["tbt_tokens_total", ("tiny", "recompute")] == 1
    assert once["tbt_positions_total", ("tiny", "prefill")] == 30
    assert once["tbt_positions_total", ("tiny", "decode")] == n_decoded
    assert once["tbt_step_seconds_count", ("5-8", "tiny", "decode")] == 3
    assert once["tbt_step_seconds_sum", ("5-8", "tiny", "decode")] == pytest.approx(0.036)
    assert once["tbt_step_seconds_bucket", ("5-8", "0.01", "tiny", "decode")] == 0
    assert once["tbt_step_seconds_bucket", ("5-8", "0.015", "tiny", "decode")] == 3
    assert once["tbt_caches_dropped_bytes_total", ("tiny",)] == 4096
    assert once["tbt_runs_refused_total", ("engine.prompt_empty",)] == 1
    happen(metrics)
    counters = {key: value for key, value in once.items() if key[0].startswith("tbt_") and key[0].endswith("_total")}
    assert len(counters) >= 10
    assert {key: samples(metrics)[key] for key in counters} == {key: 2 * value for key, value in counters.items()}


def test_how_things_stand_is_read_when_somebody_looks(metrics: Metrics) -> None:
    now = samples(metrics)
    assert now["tbt_sessions", ()] == 7 and now["tbt_queue_runs", ()] == 1
    assert now["tbt_cache_budget_bytes", ()] == 1000 and now["tbt_cache_promised_bytes", ()] == 600
    assert now["tbt_cache_held_bytes", ()] == 384
    assert now["tbt_runs", ("decoding", "tiny")] == 2 and now["tbt_runs", ("queued", "tiny")] == 1
    assert now["tbt_batch_runs", ("tiny",)] == 2 and now["tbt_tokens_per_second", ("tiny",)] == 200
    assert now["process_resident_memory_bytes", ()] > 1e6 and now["process_cpu_seconds_total", ()] > 0


def test_before_the_engine_there_is_the_rest() -> None:
    now = samples(Metrics(lambda: None, lambda: 0))
    assert now["tbt_sessions", ()] == 0 and now["tbt_engine_restarts_total", ()] == 0
    assert ("tbt_cache_held_bytes", ()) not in now


def test_names_have_units_and_labels_nothing_of_a_visitor(metrics: Metrics) -> None:
    happen(metrics)
    text = metrics.text()[0].decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation
        if family.name.startswith("tbt_"):
            units = ("_seconds", "_bytes", "_per_second", "_runs", "sessions", "runs")
            is_counter = family.type == "counter"
            assert is_counter or family.name.endswith(units), family.name
            assert not is_counter or all(sample.name.endswith("_total") for sample in family.samples)
        for sample in family.samples:
            assert set(sample.labels) <= LABELS
    assert "a-visitor" not in text and "wrote" not in text


@pytest.mark.parametrize("base", ["", "/lab"])
def test_the_route_answers_in_the_form_that_is_asked_for(base: str) -> None:
    plain = client(base).get(f"{base}/api/metrics")
    assert plain.status_code == 200 and plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert plain.headers["cache-control"] == "no-store"
    assert "tbt_sessions" in {family.name for family in text_string_to_metric_families(plain.text)}
    newer = client(base).get(f"{base}/api/metrics", headers={"Accept": OPENMETRICS})
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    assert "tbt_sessions" in {family.name for family in openmetrics_families(newer.text)}


def test_batch_sizes_fall_into_buckets_without_a_gap() -> None:
    buckets = [batch_bucket(batch) for batch in range(1, BATCHES[-1] + 2)]
    assert list(dict.fromkeys(buckets)) == ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "more"]


def test_an_event_costs_microseconds(metrics: Metrics) -> None:
    """Some 3 µs here; the bound is a hundred times that, for machines that are busy."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            metrics.stepped("tiny", Phase.DECODE, 16, 0.02, 16)
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 300e-6


def test_the_keeper_knows_who_is_here() -> None:
    keeper, held = Keeper(), [(Visit(), Slot()) for _ in range(3)]
    for visit, slot in held:
        for _ in range(2):  # every run of a page says it again
            keeper.hold(visit, slot, {})
    assert keeper.n_here == 3
    for visit, slot in held[:2]:
        keeper.left(visit.key, slot)
    assert keeper.n_here == 1
    claimed: Any = keeper.claim(held[0][0].key)
    fresh = (Visit(), Slot())
    keeper.hold(*fresh, {})  # a refreshed tab, until it says which visit it had
    keeper.gave_way(fresh[0].key)
    keeper.hold(claimed[0], Slot(), {})
    assert keeper.n_here == 2
    keeper.left(fresh[0].key, fresh[1])
    assert keeper.n_here == 2
