"""`python -m core sweep` as others rely on it: its file, what it refuses and how, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.cli.sweep import check_place
from core.lab.sweep.plan import SweepRow
from core.lab.sweep.table import read_sweep
from core.refusal import Refusal
from tests.command import ROOT, called, started

COMMAND = [sys.executable, "-m", "core", "sweep"]
SMALL = ["--model", "tiny", "--device", "cpu", "--contexts", "16,65,130", "--batches", "1,2", "--repeats", "2"]
LONG = ["--model", "tiny", "--device", "cpu", "--contexts", "16,65,130", "--batches", "1,2,4,8", "--repeats", "1000"]


def rows_of(path: Path) -> list[SweepRow]:
    text = path.read_text(encoding="utf-8")
    return read_sweep(text[: text.rfind("\n") + 1], path.name)[1]


def test_it_measures_every_point_and_then_none(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    done = started("sweep", *SMALL, "--csv", str(path))
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    assert len(rows) == 3 * 2 * 2 and {row.kv_gap_bytes for row in rows} == {0}
    assert "B=2 " in done.stdout and "all " in done.stdout and "R²" in done.stdout and "12/12" in done.stderr
    before = path.read_bytes()
    again = called("sweep", *SMALL, "--csv", str(path))
    assert again.returncode == 0 and again.stdout == done.stdout and again.stderr == ""
    assert path.read_bytes() == before


@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_what_is_ended_keeps_its_points_and_goes_on(tmp_path: Path, how: signal.Signals, status: int) -> None:
    path = tmp_path / "s.csv"
    running = subprocess.Popen(
        [*COMMAND, *LONG, "--csv", str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ends = time.monotonic() + 90
    while not path.exists() or path.read_bytes().count(b"\n") < 22:
        assert running.poll() is None and time.monotonic() < ends
        time.sleep(0.02)
    running.send_signal(how)
    output, said = running.communicate(timeout=60)
    assert running.returncode == status and "Traceback" not in said and output == ""
    kept = rows_of(path)
    assert kept
    if how is signal.SIGINT:
        assert f"{len(kept):,} rows are kept in s.csv" in said
    shorter = [word if word != "1000" else "2" for word in LONG]
    done = called("sweep", *shorter, "--csv", str(path))
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    assert rows[: len(kept)] == kept and len({row.spot for row in rows}) == len(rows)
    wanted = {(n, B, repeat) for n in (16, 65, 130) for B in (1, 2, 4, 8) for repeat in (0, 1)}
    assert wanted <= {tuple(row.spot) for row in rows}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"--contexts": "1"}, "from 2 to"),
        ({"--contexts": "16,x"}, "whole number"),
        ({"--contexts": "16,16"}, "once"),
        ({"--contexts": ""}, "whole number"),
        ({"--batches": "0"}, "from 1 to"),
        ({"--repeats": "0"}, "from 1 to"),
        ({"--fill": "slow"}, "slow"),
        ({"--csv": "no/such/folder/s.csv"}, "s.csv cannot be written there"),
        ({"--csv": "."}, "cannot be written there"),
        ({"--csv": ""}, ". cannot be written there"),
        ({"--csv": "long" * 100}, "longlong cannot be written there"),
        ({"--csv": "/dev/null"}, "null cannot be written there"),
        ({"--contexts": ",".join(str(n) for n in range(2, 99))}, "64 of them at most"),
    ],
)
def test_what_is_asked_is_checked_before_torch_is_imported(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    """Where torch cannot be imported the answer is the same sentence."""
    (tmp_path / "torch.py").write_text("raise SystemExit(77)", encoding="utf-8")
    asked = {"--model": "tiny", "--contexts": "16", "--csv": str(tmp_path / "s.csv"), **changed}
    arguments = [word for pair in asked.items() for word in pair]
    done = started("sweep", *arguments, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "s.csv").exists()
    assert reason in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever opens one to write waits until somebody reads: for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refusal):
        check_place(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        (["--model", "tiny", "--contexts", "1000000"], {}, "more than tiny takes"),
        (["--model", "no such model", "--contexts", "16"], {}, "no such model"),
        (["--model", "tiny", "--contexts", "16"], {"TBT_KV_BYTES": "1KB"}, "MiB may be taken"),
    ],
)
def test_what_cannot_be_measured_leaves_no_file(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], reason: str
) -> None:
    done = called("sweep", *arguments, "--csv", str(tmp_path / "s.csv"), **environment)
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "s.csv").exists()
    assert reason in done.stderr and done.stderr.count("\n") == 1


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("mine\n", encoding="utf-8")
    done = called("sweep", *SMALL, "--csv", str(path))
    assert done.returncode == 2 and "notes.csv is there already" in done.stderr and done.stderr.count("\n") == 1
    assert path.read_text(encoding="utf-8") == "mine\n"
