"""Sweeps as the server keeps them: rows in memory and in a file, by the name that only their visitor's browser knows.

A sweep belongs to the server, not to a session: a refreshed or closed browser neither ends nor loses it. Here is
nothing of streamlit and nothing of torch.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from core.lab.sweep.plan import SweepPlan, SweepRow
from core.lab.sweep.report import Prediction
from core.lab.sweep.table import DATE, MOST_FILE_BYTES, SweepFile, read_sweep
from core.refusal import Refusal
from pages.shared.lab.notes import COMPARED, is_possible, plan_of, predictions_of

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement  # which brings torch

FOLDER = "TBT_CACHE"
MOST_KEPT = 24
"""Sweeps of one visitor; the oldest that is over goes first."""
MOST_VISITORS = 512

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Begun:
    """What runs: the measurement of one sweep or of several side by side, and what was foreseen for it."""

    measurement: Measurement
    filling_s: float
    stepping_s: float
    n_spots: int
    begun_at: float | None = None
    """When its first point began; until then it waits for others."""

    def remaining_s(self, now: float) -> float:
        """Seconds until the last point, by what was foreseen and by how that has turned out so far."""
        n_points, n_done = len(self.measurement.points), len(self.measurement.done)
        n_fills = n_points - self.n_spots
        filled = min(1.0, n_done / n_fills) if n_fills else 1.0
        stepped = max(0, n_done - n_fills) / self.n_spots if self.n_spots else 1.0
        spent = filled * self.filling_s + stepped * self.stepping_s
        left = self.filling_s + self.stepping_s - spent
        is_telling = self.begun_at is not None and spent > 0.05 * (spent + left)
        return left * (now - (self.begun_at or now)) / spent if is_telling else left


@dataclass(eq=False)
class KeptSweep:
    """One sweep, whether it runs, was stopped, or is complete."""

    head: Mapping[str, str]
    plan: SweepPlan
    predictions: tuple[Prediction, ...]
    path: Path
    rows: list[SweepRow]
    begun: Begun | None = None
    refusal: Refusal | None = None

    @property
    def name(self) -> str:
        """The file's name without its ending: rising with time."""
        return self.path.stem

    @property
    def is_under_way(self) -> bool:
        """Whether it is measured, or waits for it."""
        return self.begun is not None

    @property
    def n_planned(self) -> int:
        """Rows it has when it is complete."""
        return len(self.plan.contexts) * len(self.plan.batches) * self.plan.repeats

    @property
    def compared(self) -> str:
        """What it is one of several for, with a number of its own for each start; "" for a sweep alone."""
        return self.head.get(COMPARED, "")


@dataclass
class SweepStore:
    """The sweeps of all visitors. A visitor is whoever knows the key."""

    folder: Path
    _kept: dict[str, list[KeptSweep]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, key: str) -> list[KeptSweep]:
        """A visitor's sweeps, newest first; those that an earlier server left are read from their files."""
        with self._lock:
            if key not in self._kept:
                while len(self._kept) >= MOST_VISITORS and (idle := self._idle()) is not None:
                    del self._kept[idle]  # the files stay
                self._kept[key] = _read_all(self._place(key))
            return list(self._kept[key])

    def under_way(self, key: str) -> KeptSweep | None:
        """The one of a visitor's that runs or waits."""
        return next((sweep for sweep in self.of(key) if sweep.is_under_way), None)

    def new_paths(self, key: str, n_files: int) -> list[Path]:
        """Where the next sweeps of a visitor are written. Raises Refusal where nothing can be."""
        place = self._place(key)
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Refusal("sweep.file_unwritable", file=place.name, reason=error.strerror or "") from None
        number = time.time_ns() // 1_000_000
        newest = max((int(sweep.name) for sweep in self.of(key) if sweep.name.isdecimal()), default=0)
        first = max(number, newest + 1)
        return [place / f"{first + index:015d}.csv" for index in range(n_files)]

    def add(self, key: str, sweep: KeptSweep) -> None:
        """Keeps one more; the oldest that is over goes when there are too many."""
        self.of(key)
        with self._lock:
            self._kept[key].insert(0, sweep)
            over = [one for one in self._kept[key] if not one.is_under_way and one is not sweep]
            for one in over[MOST_KEPT - 1 :]:
                self._drop(key, one)

    def forget(self, key: str, sweep: KeptSweep) -> None:
        """Deletes one that is over, with its file."""
        with self._lock:
            if not sweep.is_under_way and sweep in self._kept.get(key, ()):
                self._drop(key, sweep)

    def _drop(self, key: str, sweep: KeptSweep) -> None:
        self._kept[key].remove(sweep)
        sweep.path.unlink(missing_ok=True)

    def _idle(self) -> str | None:
        return next((key for key, kept in self._kept.items() if not any(one.is_under_way for one in kept)), None)

    def _place(self, key: str) -> Path:
        # Who can list the folder still cannot say a visitor's key.
        return self.folder / blake2b(key.encode(), digest_size=16).hexdigest()


class Writing:
    """The files of sweeps that are about to be measured: a row is written first, and then kept.

    Raises Refusal where a file cannot be written, or holds something else.
    """

    def __init__(self, kept: Sequence[KeptSweep]) -> None:
        self._kept = kept
        self._files: list[SweepFile] = []
        try:
            for sweep in kept:
                self._files.append(SweepFile(sweep.path, sweep.head))
        except Refusal:
            self.close()
            raise

    def close(self) -> None:
        """Closes them."""
        for file in self._files:
            file.__exit__()

    @property
    def tellers(self) -> list[Callable[[SweepRow], None]]:
        """For each sweep what hears of its rows, in the engine's thread."""
        return [partial(_tell, sweep, file) for sweep, file in zip(self._kept, self._files, strict=True)]

    def until_over(self, begun: Begun) -> None:
        """The sweeps are under way until the measurement is over, or has failed; then the files are closed."""
        for sweep in self._kept:
            sweep.begun, sweep.refusal = begun, None

        def ended(future: Future[Any]) -> None:
            self.close()
            error = None if future.cancelled() else future.exception()
            for sweep in self._kept:
                if error is not None:
                    sweep.refusal = error if isinstance(error, Refusal) else Refusal("engine.step_failed")
                sweep.begun = None  # and with it the caches

        begun.measurement.future.add_done_callback(ended)


def _tell(sweep: KeptSweep, file: SweepFile, row: SweepRow) -> None:
    file.add(row)
    sweep.rows.append(row)


def cache_folder() -> Path:
    """Where sweeps are written: the operator's TBT_CACHE, else a folder for temporary files that is ours alone."""
    set_by_operator = os.environ.get(FOLDER)
    if set_by_operator:
        try:
            folder = Path(set_by_operator).expanduser() / "sweeps"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # a file is in its place, say, or nobody is called so whose home it names
            logger.warning("TBT_CACHE cannot be used: sweeps are kept in a folder for temporary files.")
        else:
            return folder
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"token-by-token-{owner}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_ours = not folder.is_symlink() and found.st_uid == owner and not found.st_mode & 0o077
    except OSError:
        is_ours = False
    # Others may have put something there first: then what is written cannot be found again by the next server.
    return folder if is_ours else Path(tempfile.mkdtemp(prefix="token-by-token-"))


def _read_all(place: Path) -> list[KeptSweep]:
    """The sweeps in a folder, newest first; what cannot be read is left out."""
    found = []
    for path in sorted(place.glob("*.csv"), reverse=True)[:MOST_KEPT] if place.is_dir() else []:
        try:
            if path.stat().st_size > MOST_FILE_BYTES:
                continue
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1].decode()
            head, rows = read_sweep(whole, path.name)
            if not all(map(is_possible, rows)):
                continue
            found.append(KeptSweep(head, plan_of(head, rows), predictions_of(head), path, rows))
        except (OSError, UnicodeDecodeError, Refusal):
            continue
    return found


def kept_date(head: Mapping[str, str]) -> str:
    """When it was begun, to the minute, in UTC: as in the file."""
    return head.get(DATE, "")[:16].replace("T", " ")
