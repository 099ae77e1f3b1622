"""The record of a server's sweep: fixed columns first, a point a row on disk at once, continued and never mixed."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from core.cli.sweep_endpoint import sweep_endpoint
from core.estimate.catalogue import shape
from core.estimate.kv import kv_bytes
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.plan import PointKey, RemotePlan
from core.lab.remote.point import Note, RemotePoint
from core.lab.remote.table import COLUMNS, FIXED_COLUMNS, FORMAT, RemoteTable, row_of
from core.refusal import Refusal
from core.words import catalogue
from tests.endpoint_options import options
from tests.fake_openai import FakeOpenAI
from tests.in_step import read_in_step

PLAN = RemotePlan(contexts=(20, 40), batches=(1, 2), new_tokens=8)


def rows_of(file: Path) -> list[dict[str, str]]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def test_the_fixed_columns_come_first_and_are_the_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    read_in_step(monkeypatch)
    with FakeOpenAI(metrics=True, step_s=0.1) as fake:
        assert sweep_endpoint(options(fake.url + "/v1", file, model="smollm2")) == 0
    text = file.read_text(encoding="utf-8")
    assert text.splitlines()[0] == f"# {FORMAT}" and f"# endpoint: {fake.url}\n" in text
    rows = rows_of(file)
    assert tuple(rows[0])[:9] == FIXED_COLUMNS and tuple(rows[0]) == COLUMNS and len(rows) == 4
    for row in rows:
        context, batch = int(row["context"]), int(row["batch"])
        assert int(row["kv_bytes_formula"]) == kv_bytes(shape("smollm2"), n_tokens=context, batch=batch)
        assert int(row["prompt_tokens"]) == context - 4 and int(row["tokens"]) == 8
        assert int(row["flops_exact"]) > 0 and int(row["flops_chapter"]) > 0 and int(row["bytes_read"]) > 0
        assert float(row["decode_step_s"]) > 0 and float(row["ttft_s"]) > 0 and row["note"] == ""
        assert float(row["kv_tokens"]) == 400 and int(row["kv_bytes_measured"]) == 400 * 46080 // 2


def test_without_a_model_the_formulas_are_empty(tmp_path: Path) -> None:
    with FakeOpenAI() as fake:
        assert sweep_endpoint(options(fake.url, tmp_path / "a.csv")) == 0
    for row in rows_of(tmp_path / "a.csv"):
        assert [row[name] for name in FIXED_COLUMNS[3:5] + FIXED_COLUMNS[6:]] == [""] * 5 and row["ttft_s"]


def test_points_given_up_are_marked_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    with FakeOpenAI(most_prompt=30) as fake:
        assert sweep_endpoint(options(fake.url, file)) == 2
        assert "2 of 4 points could not be measured" in capsys.readouterr().err
        before = rows_of(file)
        assert [row["note"].startswith("failed:rejected") for row in before] == [False, False, True, True]
        fake.most_prompt = 100
        n_before = len(fake.streams())
        assert sweep_endpoint(options(fake.url, file)) == 0
        assert len(fake.streams()) - n_before == 1 + 1 + 2  # warm-up and what was missing
        assert rows_of(file)[:2] == before[:2] and len(rows_of(file)) == 4
        n_before = len(fake.streams())
        assert sweep_endpoint(options(fake.url, file)) == 0 and len(fake.streams()) == n_before


def test_a_sweep_of_another_thing_is_not_mixed_in(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with FakeOpenAI() as fake:
        assert sweep_endpoint(options(fake.url, file)) == 0
        for changed, name in (
            (options(fake.url, file, model="smollm2"), "model"),
            (options(fake.url, file, "--new-tokens", "12"), "new tokens"),
            (options(fake.url, file, "--api", "chat"), "interface"),
            (options(fake.url, file, "--served-model", "x"), "served model"),
        ):
            text = file.read_bytes()
            with pytest.raises(Refusal) as refused:
                sweep_endpoint(changed)
            assert refused.value.key == "endpoint.file_of_another" and f"its {name}" in str(refused.value)
            assert file.read_bytes() == text


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\xfe", b"# token-by-token sweep 1\n", b"x"])
def test_foreign_files_are_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with FakeOpenAI() as fake, pytest.raises(Refusal):
        sweep_endpoint(options(fake.url, file))
    assert file.read_bytes() == content


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with FakeOpenAI() as fake, pytest.raises(Refusal, match=r"a\.csv cannot be written"):
        sweep_endpoint(options(fake.url, tmp_path / "none" / "a.csv"))


def table(file: Path) -> RemoteTable:
    return RemoteTable(file, {"endpoint": "http://h:1", "note": "two\nlines"}, ("endpoint",))


def test_each_row_is_on_disk_and_a_torn_one_is_dropped(tmp_path: Path) -> None:
    """Whatever byte the writing ended at, what stands before it is kept and the rest asked for again."""
    file = tmp_path / "a.csv"
    points: list[Any] = [
        RemotePoint(key=PointKey(20, 1, 0), decode_step_s=0.1, tokens=8),
        RemotePoint(key=PointKey(20, 2, 0), fault=Fault(Kind.CUT)),
        RemotePoint(key=PointKey(40, 1, 0), decode_step_s=0.2, tokens=8),
    ]
    with table(file) as opened:
        for n, point in enumerate(points, 1):
            opened.add(row_of(point, PLAN))
            assert len(rows_of(file)) == n
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        n_lines = whole[:end].count(b"\n")
        try:
            found = table(file).done
        except Refusal:
            assert n_lines == 0 and end > 0  # not a line of ours: nobody's file is overwritten
            continue
        wanted = [PointKey(20, 1, 0)] * (n_lines >= 5) + [PointKey(40, 1, 0)] * (n_lines >= 7)
        assert found == set(wanted)
    file.write_bytes(whole + b"20,4,0,12")
    with table(file):
        pass
    assert [row["batch"] for row in rows_of(file)] == ["1", "1"]  # without the given up and the torn one


def test_an_interrupt_ends_it_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, earlier = tmp_path / "a.csv", signal.getsignal(signal.SIGINT)
    with FakeOpenAI() as fake:
        fake.deeds.extend(["ok", "ok", "silent"])  # the warm-up, the first point, the second

        def interrupt() -> None:
            until = time.monotonic() + 60
            while time.monotonic() < until and not (file.exists() and rows_of(file)):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        assert sweep_endpoint(options(fake.url, file)) == 130
    assert "The sweep was stopped. 1 of 4 points are in the file" in capsys.readouterr().err
    assert len(rows_of(file)) == 1 and signal.getsignal(signal.SIGINT) is earlier


def test_every_fault_and_note_has_its_sentence() -> None:
    keys = {key.removeprefix("endpoint.") for key in catalogue("en") if key.startswith("endpoint.")}
    wanted = {f"fault_{kind}" for kind in Kind} | {f"note_{note}" for note in Note}
    assert {key for key in keys if key.startswith(("fault_", "note_"))} == wanted
