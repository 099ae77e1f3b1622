"""The record of a sweep as a CSV file: comments, then a row a point, each on disk before the next is asked for."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from core.estimate.estimate import Request, estimate
from core.lab.remote.plan import PointKey, RemotePlan
from core.lab.remote.point import RemotePoint
from core.refusal import Refusal

FIXED_COLUMNS = (
    *("context", "batch", "repeat", "kv_bytes_formula", "kv_bytes_measured", "decode_step_s"),
    *("flops_chapter", "flops_exact", "bytes_read"),
)
OWN_COLUMNS = (
    *("tpot_s", "ttft_s", "ttft_last_s", "tokens", "prompt_tokens", "pieces", "together", "cached_tokens"),
    *("kv_share", "kv_tokens", "retries", "note"),
)
COLUMNS = (*FIXED_COLUMNS, *OWN_COLUMNS)
FORMAT = "token-by-token endpoint sweep 1"
MOST_FILE_BYTES = 2**26
FAILED = "failed:"


def row_of(point: RemotePoint, plan: RemotePlan) -> dict[str, Any]:
    """A point as a row: base units, empty where there is no value; notes by their codes.

    `kv_bytes_measured` is the server's own count of positions times the bytes of one, which is all it tells of bytes.
    """
    key = point.key
    row: dict[str, Any] = {"context": key.context, "batch": key.batch, "repeat": key.repeat}
    if plan.shape is not None:
        request = Request(
            batch=key.batch, context=key.context, weight_dtypes=plan.weight_dtypes, kv_dtypes=plan.kv_dtypes
        )
        made = estimate(plan.shape, request)
        row |= {
            "kv_bytes_formula": made.kv_bytes,
            "flops_chapter": made.decode.flops_chapter,
            "flops_exact": made.decode.flops_exact,
            "bytes_read": made.decode.weights_read + made.decode.kv_read,
        }
        if point.kv_tokens is not None and made.kv_bytes_per_token is not None:
            row["kv_bytes_measured"] = round(point.kv_tokens * made.kv_bytes_per_token)
    row |= {name: getattr(point, name) for name in ("decode_step_s", *OWN_COLUMNS[:-1])}
    row["note"] = f"{FAILED}{point.fault.kind}" if point.fault else " ".join(point.notes)
    return {name: "" if row.get(name) is None else row[name] for name in COLUMNS}


class RemoteTable:
    """A file being written. Opened anew, or behind the finished points of an earlier sweep of the same things."""

    def __init__(self, path: Path, heads: Mapping[str, str], same: Iterable[str]) -> None:
        """`heads` become `# name: value` lines; those named in `same` must agree with an earlier file's.

        Raises:
            Refusal: the file is not of this kind, or of another sweep, or cannot be written.
        """
        self._path = path
        self._file: TextIO | None = None
        heads = {name: _one_line(value) for name, value in heads.items()}
        try:
            comments, rows = _read(path) if path.exists() else ([], [])
        except (OSError, ValueError, csv.Error):
            raise Refusal("endpoint.file_unreadable", file=path.name) from None
        if rows is None:
            raise Refusal("endpoint.file_foreign", file=path.name)
        if comments:
            _check_same(path, comments, heads, same)
        self._rows = [row for row in rows if not row["note"].startswith(FAILED)]
        self._comments = comments or [f"# {FORMAT}", *(f"# {name}: {value}" for name, value in heads.items())]
        self.done = frozenset(
            PointKey(int(row["context"]), int(row["batch"]), int(row["repeat"])) for row in self._rows
        )

    def __enter__(self) -> Self:
        """Writes the head and the finished points beside the file, puts that in its place, and goes on behind it."""
        beside = self._path.with_name(self._path.name + ".part")
        try:
            with beside.open("w", encoding="utf-8", newline="") as file:
                file.writelines(f"{line}\n" for line in self._comments)
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(self._rows)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            self._file = self._path.open("a", encoding="utf-8", newline="")
        except OSError:
            raise Refusal("endpoint.file_unwritable", file=self._path.name) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: Mapping[str, Any]) -> None:
        """A row, on disk when this returns. Raises Refusal where the disk does not take it."""
        assert self._file is not None
        try:
            csv.DictWriter(self._file, COLUMNS, lineterminator="\n").writerow(row)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            raise Refusal("endpoint.file_unwritable", file=self._path.name) from None


def _read(path: Path) -> tuple[list[str], list[dict[str, str]] | None]:
    """Comment lines and rows of a file; no rows (None) where its columns are others. A torn last line is left out."""
    if not path.is_file() or path.stat().st_size > MOST_FILE_BYTES:
        raise ValueError  # a folder, or a device, which may have no end
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if text and not text.endswith("\n"):
        lines = lines[:-1]  # it was being written
    comments = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if not line.startswith("#")]
    if not text:
        return [], []
    if not comments or comments[0] != f"# {FORMAT}":
        return comments, None
    if not body:
        return [], []  # ended before its columns: begun anew
    if tuple(body[0].split(",")) != COLUMNS:
        return comments, None
    rows = [dict(zip(COLUMNS, fields, strict=True)) for fields in csv.reader(body[1:])]
    for row in rows:
        for name in ("context", "batch", "repeat"):
            int(row[name])
    return comments, rows


def _check_same(path: Path, comments: Iterable[str], heads: Mapping[str, str], same: Iterable[str]) -> None:
    earlier = dict(line.removeprefix("# ").split(": ", 1) for line in comments if ": " in line)
    for name in same:
        if earlier.get(name, "") != heads[name]:
            raise Refusal(
                "endpoint.file_of_another", file=path.name, name=name, was=earlier.get(name, ""), now=heads[name]
            )


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
