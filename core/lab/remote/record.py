"""The file of a server's sweep as somebody else reads it: a stranger's, so every value is checked before it counts.

The table's own reading, which goes on with a file, only needs to know which points are done; this one gives them back.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from re import fullmatch

from core.lab.remote.faults import Fault, Kind
from core.lab.remote.limits import MOST_CONCURRENT, MOST_CONTEXT, MOST_NEW_TOKENS, MOST_REPEATS
from core.lab.remote.plan import PointKey
from core.lab.remote.point import Note, RemotePoint
from core.lab.remote.table import COLUMNS, FAILED, FORMAT
from core.refusal import Refusal

MOST_ROWS, MOST_CELLS = 5000, 400
"""Points in a file, and different pairs of context and batch among them: each is drawn, and reckoned with."""
LEAST_SECONDS, MOST_SECONDS, MOST_POSITIONS, MOST_RETRIES = 1e-9, 10**5, 10**12, 10**6
LONGEST_HEAD, LONGEST_NAME = 200, 40


@dataclass(frozen=True, slots=True)
class Record:
    """A sweep out of its file: what the head says, name by name, and the points in the order they were measured."""

    head: Mapping[str, str]
    points: tuple[RemotePoint, ...]

    @property
    def model(self) -> str:
        """The catalogue's name for the model; "" where the sweep was of another."""
        return self.head.get("model", "")


def is_record(text: str) -> bool:
    """Whether a text says of itself that it is the sweep of a server."""
    return text.startswith(f"# {FORMAT}") and text[len(FORMAT) + 2 :][:1] in ("\n", "\r", "")


def read_record(text: str, file: str) -> Record:
    """The head and the points of a file; the end of a line that was never finished is left out.

    `file` is what it is called in a refusal. Raises Refusal for what is no sweep of a server, for a row that is none or
    stands there twice, and for more rows or points than MOST_ROWS and MOST_CELLS.
    """
    lines = text.splitlines()
    if lines and not text.endswith(("\n", "\r")):
        lines = lines[:-1]
    if not is_record(text) or not lines:
        raise Refusal("server.file_no_sweep", file=file)
    body = [(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#")]
    said = (line.removeprefix("# ").split(": ", 1) for line in lines[1:] if line.startswith("#") and ": " in line)
    head = {name[:LONGEST_NAME]: value[:LONGEST_HEAD] for name, value in said}
    if body and tuple(body[0][1].split(",")) != COLUMNS:
        raise Refusal("server.file_no_sweep", file=file)
    if len(body) - 1 > MOST_ROWS:
        raise Refusal("server.file_too_long", file=file, most=MOST_ROWS)
    points = tuple(_points(body[1:], file))
    if not points:
        raise Refusal("server.file_empty", file=file)
    if len({point.key[:2] for point in points}) > MOST_CELLS:
        raise Refusal("server.file_too_long", file=file, most=MOST_CELLS)
    return Record(head, points)


def _points(rows: list[tuple[int, str]], file: str) -> Iterator[RemotePoint]:
    seen = set()
    for number, line in rows:
        try:
            point = _point(dict(zip(COLUMNS, next(csv.reader([line])), strict=True)))
            if point.key in seen:
                raise ValueError
        except (ValueError, StopIteration, csv.Error):
            raise Refusal("server.row_broken", file=file, line=number) from None
        seen.add(point.key)
        yield point


def _point(cells: Mapping[str, str]) -> RemotePoint:
    """Raises ValueError for what no sweep can have written."""
    note = cells["note"]
    fault = Fault(Kind(note.removeprefix(FAILED))) if note.startswith(FAILED) else None
    point = RemotePoint(
        key=PointKey(
            _known(cells["context"], MOST_CONTEXT, 1),
            _known(cells["batch"], MOST_CONCURRENT, 1),
            _known(cells["repeat"], MOST_REPEATS),
        ),
        decode_step_s=_seconds(cells["decode_step_s"]),
        tpot_s=_seconds(cells["tpot_s"]),
        ttft_s=_seconds(cells["ttft_s"]),
        ttft_last_s=_seconds(cells["ttft_last_s"]),
        tokens=_whole(cells["tokens"], 2 * MOST_NEW_TOKENS),
        prompt_tokens=_whole(cells["prompt_tokens"], 2 * MOST_CONTEXT),
        pieces=_whole(cells["pieces"], 2 * MOST_NEW_TOKENS),
        together=_number(cells["together"], 1),
        cached_tokens=_whole(cells["cached_tokens"], 2 * MOST_CONTEXT),
        kv_share=_number(cells["kv_share"], MOST_POSITIONS),
        kv_tokens=_number(cells["kv_tokens"], MOST_POSITIONS),
        retries=_known(cells["retries"], MOST_RETRIES),
        notes=() if fault else tuple(Note(code) for code in note.split()),
        fault=fault,
    )
    if point.is_measured and (not point.ttft_s or point.ttft_last_s is None or point.tokens is None):
        raise ValueError
    return point


def _known(text: str, most: int, least: int = 0) -> int:
    value = _whole(text, most)
    if value is None or value < least:
        raise ValueError
    return value


def _whole(text: str, most: int) -> int | None:
    """A whole number from 0 to `most`; None for nothing."""
    if not text:
        return None
    if not fullmatch("[0-9]{1,15}", text) or int(text) > most:
        raise ValueError
    return int(text)


def _number(text: str, most: float) -> float | None:
    """A number from 0 to `most` as Python writes one; None for nothing."""
    if not text:
        return None
    if not fullmatch(r"[0-9]{1,20}(\.[0-9]{1,25})?(e[-+]?[0-9]{1,3})?", text) or not 0 <= float(text) <= most:
        raise ValueError
    return float(text)


def _seconds(text: str) -> float | None:
    """A time that can have passed, since rates are made of it; None for nothing."""
    value = _number(text, MOST_SECONDS)
    if value is not None and value < LEAST_SECONDS:
        raise ValueError
    return value
