"""Which experiment is open, and what all of them run on: a model that is loaded, and a prompt."""

from __future__ import annotations

from collections.abc import Callable

from pages.shared.link import fill_in_defaults
from pages.shared.settings import TECHNIQUES
from pages.shared.techniques import (
    batching,
    chunks,
    draft,
    experts,
    heads,
    prefix,
    quantised,
    sampling,
    surgery,
    thought,
    two,
)
from pages.shared.techniques.bench import Bench, heading_of, live_bench
from pages.shared.techniques.reckoned import KNOWN, show_reckoned

LIVE: dict[str, Callable[[Bench], None]] = {
    "sampling": sampling.show,
    "weights": quantised.show_weights,
    "cache": quantised.show_cache,
    "draft": draft.show,
    "thought": thought.show,
    "heads": heads.show,
    "surgery": surgery.show,
    "two": two.show,
    "batching": batching.show,
    "experts": experts.show,
    "chunks": chunks.show,
    "prefix": prefix.show,
}


def show_experiment(name: str) -> None:
    """The experiment of one technique, from its question to its takeaway."""
    fill_in_defaults(TECHNIQUES)
    heading_of(name)
    bench = live_bench()
    if bench is not None:
        LIVE[name](bench)
    elif name in KNOWN:
        show_reckoned(name)  # what needs no live model
