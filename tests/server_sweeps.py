"""Sweeps of servers that nobody measured, written by the real table: for whoever reads such a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from core.estimate import catalogue
from core.lab.remote.plan import PointKey, RemotePlan
from core.lab.remote.point import Note, RemotePoint
from core.lab.remote.table import RemoteTable, row_of

NEW_TOKENS = 32
HEADS = {"endpoint": "http://gpu7:8000", "served model": "Qwen/Qwen3-32B", "model": "qwen3-32b", "new tokens": "32"}
DTYPES = {"weights": "bf16", "KV": "fp8", "date": "2026-11-30T09:00:00+00:00"}


def step_s(context: int, batch: int) -> float:
    """A law that the points of `healthy` follow exactly."""
    return 0.020 + 1e-7 * context + 2e-4 * batch + 1.2e-7 * context * batch


def point(context: int, batch: int, repeat: int = 0, **more: object) -> RemotePoint:
    """A point of a healthy server; `more` replaces what is unusual about it."""
    step = step_s(context, batch)
    values: dict[str, object] = {
        "decode_step_s": step,
        "tpot_s": 1.01 * step,
        "ttft_s": 4e-5 * context * (batch + 1) / 2,
        "ttft_last_s": 4e-5 * context * batch + 1e-3,
        "tokens": NEW_TOKENS,
        "prompt_tokens": context - NEW_TOKENS // 2,
        "pieces": NEW_TOKENS,
        "together": 0.9,
        "kv_share": context * batch / 400_000,
        "kv_tokens": float(-(-context // 16) * 16 * batch),
    }
    return RemotePoint(key=PointKey(context, batch, repeat), **(values | more))  # type: ignore[arg-type]


def healthy(contexts: Iterable[int] = (1024, 4096, 16384), batches: Iterable[int] = (1, 4, 16)) -> list[RemotePoint]:
    """One point at every pair."""
    batches = list(batches)
    return [point(context, batch) for context in contexts for batch in batches]


def queued(context: int, batch: int) -> RemotePoint:
    """One whose requests were answered one after the other."""
    return point(context, batch, decode_step_s=None, together=0.0, notes=(Note.QUEUED,), kv_tokens=None, kv_share=None)


def written(points: Iterable[RemotePoint], heads: Mapping[str, str] | None = None) -> str:
    """The text of the file that the table writes for these points."""
    known = HEADS | DTYPES if heads is None else dict(heads)
    shape = catalogue.shape(known["model"]) if known.get("model") in catalogue.models() else None
    plan = RemotePlan(contexts=(1024,), batches=(1,), new_tokens=NEW_TOKENS, shape=shape)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.csv"
        with RemoteTable(file, known, ()) as table:
            for one in points:
                table.add(row_of(one, plan))
        return file.read_text(encoding="utf-8")
