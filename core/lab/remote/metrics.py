"""How full a server's KV cache is, from the figures it publishes for Prometheus."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from core.lab.remote.faults import Fault
from core.lab.remote.server import Client

# vLLM: docs.vllm.ai, usage/metrics (0 to 1; the second name until 0.9). SGLang: docs.sglang.io, production_metrics.
# llama.cpp: tools/server/README.md (the ratio until mid-2025).
SHARE_NAMES = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
USED_NAMES = ("sglang:num_used_tokens", "llamacpp:kv_cache_tokens")
RUNNING_NAMES = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
BLOCKS_NAME, CAPACITY_NAME = "vllm:cache_config_info", "sglang:max_total_num_tokens"
POLL_EVERY_S = 0.2
_MOST_BYTES = 2**23


@dataclass(frozen=True, slots=True)
class KvUse:
    """A cache at one moment.

    Attributes:
        at: on the clock of `time.perf_counter`.
        share: of it that is in use, 0 to 1; None where the server does not say.
        tokens: positions that the used blocks have room for; None where it says neither these nor its blocks.
        running: requests under way, anybody's; None where it does not say.
    """

    at: float
    share: float | None
    tokens: float | None
    running: int | None


def kv_use(text: str, at: float) -> KvUse | None:
    """What a page of figures says of the KV cache; None where it says nothing, or is no such page."""
    found: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    shares = next((_finite(found[name]) for name in SHARE_NAMES if name in found), [])
    used = next((_finite(found[name]) for name in USED_NAMES if name in found), [])
    running = next((_finite(found[name]) for name in RUNNING_NAMES if name in found), [])
    tokens = sum(sample.value for sample in used) if used else _tokens_of(shares, found)
    if not shares and tokens is None and not running:
        return None
    share = sum(sample.value for sample in shares) / len(shares) if shares else None
    return KvUse(at, share, tokens, int(sum(sample.value for sample in running)) if running else None)


def _tokens_of(shares: list[Sample], found: dict[str, list[Sample]]) -> float | None:
    """Share × blocks × tokens a block, engine by engine where a server has several."""
    capacities: dict[str, float] = {}
    for sample in found.get(BLOCKS_NAME, []):
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if blocks.isdecimal() and size.isdecimal():
            capacities[sample.labels.get("engine", "")] = int(blocks) * int(size)
    for sample in _finite(found.get(CAPACITY_NAME, [])):
        capacities[sample.labels.get("engine", "")] = sample.value
    if not shares or not capacities:
        return None
    only = next(iter(capacities.values())) if len(capacities) == 1 else None
    of_each = [(share.value, capacities.get(share.labels.get("engine", ""), only)) for share in shares]
    known = [share * capacity for share, capacity in of_each if capacity is not None]
    return sum(known) if len(known) == len(of_each) else None


def _finite(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if math.isfinite(sample.value) and sample.value >= 0]


def asked_kv_use(client: Client) -> KvUse | None:
    """The server's cache now; None where it publishes no figures, or does not answer. Raises Fault when all is over."""
    try:
        with client.exchange() as exchange:
            exchange.ask("GET", client.address.metrics)
            return kv_use(exchange.whole(_MOST_BYTES).decode(errors="replace"), time.perf_counter())
    except Fault:
        client.watch.check()
        return None


class Poller:
    """Looks at the cache again and again while a batch is under way; a context manager."""

    def __init__(self, client: Client) -> None:
        self._client, self._stop = client, threading.Event()
        self._seen: list[KvUse] = []
        self._thread = threading.Thread(target=self._poll, name="endpoint-metrics", daemon=True)

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def nearest(self, begin: float, end: float) -> KvUse | None:
        """The look nearest the middle of a stretch of time, if there was one within it."""
        within = [use for use in self._seen if begin <= use.at <= end]
        return min(within, key=lambda use: abs(use.at - (begin + end) / 2), default=None)

    def _poll(self) -> None:
        while not self._stop.wait(POLL_EVERY_S):
            try:
                use = asked_kv_use(self._client)
            except Fault:
                return
            if use is not None:
                self._seen.append(use)
