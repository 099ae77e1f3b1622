"""The sweep's file: CSV with a head of `#` lines, written row by row, so that whatever ends it leaves a valid file.

The head says what was measured on what. A file is continued only where its head is the same, the date aside; the end of
a line that was never finished is cut off.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from core.lab.sweep.plan import SweepRow
from core.refusal import Refusal

FORMAT = "token-by-token sweep 1"
DATE = "date"
COLUMNS = tuple(field.name for field in fields(SweepRow))
MOST_FILE_BYTES = 64 * 2**20


class SweepFile:
    """One file of one sweep, open while rows are added; a context manager."""

    def __init__(self, path: Path, head: Mapping[str, str]) -> None:
        """Makes the file, or opens one that an earlier run of the same sweep left.

        `head`: what was measured on what, name by name. Raises Refusal for a file of something else, or one that
        cannot be written.
        """
        self.path = path
        self.rows: list[SweepRow] = []
        try:
            self._continue(head) if path.exists() and path.stat().st_size else self._begin(head)
        except OSError as error:
            raise Refusal("sweep.file_unwritable", file=path.name, reason=error.strerror or "") from None

    def __enter__(self) -> SweepFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: SweepRow) -> None:
        """Writes one row, in one piece and down to the disk. Raises Refusal when that fails, as on a full disk."""
        try:
            self._write(_line(_as_text(row)))
        except OSError as error:
            raise Refusal("sweep.file_unwritable", file=self.path.name, reason=error.strerror or "") from None
        self.rows.append(row)

    def _begin(self, head: Mapping[str, str]) -> None:
        self._file = self.path.open("wb", buffering=0)
        self._write("".join(f"# {text}\n" for text in (FORMAT, *(f"{k}: {v}" for k, v in head.items()))) + _names())

    def _continue(self, head: Mapping[str, str]) -> None:
        whole = _whole_lines(self.path)
        found, self.rows = read_sweep(whole, self.path.name)
        different = [name for name in {**head, **found} if name != DATE and head.get(name) != found.get(name)]
        if different:
            raise Refusal("sweep.other_sweep", file=self.path.name, names=", ".join(different))
        self._file = self.path.open("r+b", buffering=0)
        self._file.truncate(len(whole.encode()))
        self._file.seek(0, os.SEEK_END)

    def _write(self, text: str) -> None:
        self._file.write(text.encode())
        os.fsync(self._file.fileno())


def _whole_lines(path: Path) -> str:
    """The text up to its last line end. Raises Refusal for what is no text of ours."""
    if path.stat().st_size > MOST_FILE_BYTES:
        raise Refusal("sweep.not_a_sweep", file=path.name)
    content = path.read_bytes()
    try:
        return content[: content.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal("sweep.not_a_sweep", file=path.name) from None


def read_sweep(text: str, file: str) -> tuple[dict[str, str], list[SweepRow]]:
    """A sweep's head and rows. `file` is what it is called in a refusal.

    Raises Refusal for what is no sweep, and for a row that is none.
    """
    lines = text.splitlines()
    n_head = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if not lines or lines[0] != f"# {FORMAT}":
        raise Refusal("sweep.not_a_sweep", file=file)
    head = dict(line.removeprefix("# ").split(": ", 1) for line in lines[1:n_head] if ": " in line)
    if n_head == len(lines):
        return head, []  # ended before its first row
    try:
        names = tuple(next(csv.reader([lines[n_head]])))
    except csv.Error:  # a field longer than the library takes, say
        names = ()
    if names != COLUMNS:
        raise Refusal("sweep.not_a_sweep", file=file)
    rows = []
    for number, line in enumerate(lines[n_head + 1 :], n_head + 2):
        try:
            rows.append(_as_row(dict(zip(COLUMNS, next(csv.reader([line])), strict=True))))
        except (ValueError, StopIteration, csv.Error):
            raise Refusal("sweep.row_broken", file=file, line=number) from None
    return head, rows


def _names() -> str:
    return _line(COLUMNS)


def _line(values: Iterable[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(values)
    return written.getvalue()


def _as_text(row: SweepRow) -> list[str]:
    values = (getattr(row, name) for name in COLUMNS)
    return ["" if value is None else str(int(value) if isinstance(value, bool) else value) for value in values]


def _as_row(cells: Mapping[str, str]) -> SweepRow:
    """Raises ValueError for what is no number, or no number that can be."""
    numbers = {name: int(cells[name]) for name in COLUMNS if name not in _OTHERS}
    seconds = float(cells["decode_step_s"])
    if min(numbers.values()) < 0 or not 0 < seconds < float("inf"):
        raise ValueError
    peak, disturbed = cells["peak_memory_bytes"], cells["disturbed"]
    return SweepRow(
        **numbers,
        decode_step_s=seconds,
        peak_memory_bytes=int(peak) if peak else None,
        disturbed=bool(int(disturbed)) if disturbed else None,
    )


_OTHERS = ("decode_step_s", "peak_memory_bytes", "disturbed")
