"""A saved run as the stage shows it: a frame out of the record, and nothing that could be pressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from core.engine.saved_run import SavedRun
from core.words import sentence
from pages.shared import wire
from pages.shared.facts import machine_words
from pages.shared.keep import new_key
from pages.shared.settings import SPEEDS
from pages.shared.stage import KEY, Event

Where = Literal["file", "page"]
"""A replay in the app, of an opened file, or on a page of its own."""
NOTHING = dict.fromkeys(("prefill", "decode", "step_back", "reset", "next_turn"), False)


@dataclass
class Opened:
    """A file that a visitor has opened. `key` is what the stage knows it by, `have` the steps it has of it."""

    saved: SavedRun
    file_name: str
    key: str = field(default_factory=new_key)
    have: int = 0
    n_answers: int = 0


def opened_frame(opened: Opened, event: Event | None, language: str, units: str, speed: int) -> bytes:
    """The steps of an opened run that the stage does not have yet."""
    if event is not None and event.visit == opened.key:
        opened.have = max(0, event.have)
    opened.n_answers += 1
    header = replay_header(opened.saved, "file", language, units, speed)
    header |= {"visit": opened.key, "answer": opened.n_answers}
    return wire.saved_frame(header, opened.saved, min(opened.have, len(opened.saved.trace.steps)))


def replay_header(saved: SavedRun, where: Where, language: str, units: str, speed: int) -> dict[str, Any]:
    """What the stage is told besides the run."""
    model = saved.model
    machine = machine_words(model.dtype_name, model.device, model.n_cores, language)
    return {
        "stage": KEY,
        "answer": 1,
        "visit": "saved run",
        "run": 1,
        "version": 1,
        "language": language,
        "units": units,
        "speed": speed,
        "speeds": SPEEDS,
        "busy": "",
        "can": NOTHING,
        "notice": {"kind": "info", "text": sentence("keepsake.notice", language, when=when(saved))},
        "line": {"model": model.name, "machine": machine, "changed": False},
        "replay": where,
    }


def when(saved: SavedRun) -> str:
    """The time a run was saved at, UTC."""
    return datetime.fromtimestamp(saved.saved_at, UTC).strftime("%Y-%m-%d %H:%M")


def words_of(saved: SavedRun, language: str) -> Mapping[str, str]:
    """What a run began with, in words: how it sampled, and how many tokens there are."""
    sampling, trace = saved.config.sampling, saved.trace
    values = {
        "temperature": f"{sampling.temperature:g}",
        "top_k": f"{sampling.top_k:,}",
        "top_p": f"{sampling.top_p:g}",
        "seed": str(sampling.seed),
    }
    how = "greedy" if sampling.is_greedy else "sampled"
    counts = {"prompt": f"{len(trace.prompt_ids):,}", "produced": f"{len(trace.output_ids):,}"}
    return {
        "sampling": sentence(f"keepsake.{how}", language, **values),
        "tokens": sentence("keepsake.tokens_counted", language, **counts),
    }
