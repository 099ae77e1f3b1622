"""`python -m core roofs`: kept or measured, as JSON or for a reader, and one sentence for whatever is wrong."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.cli.arguments import build_parser
from core.cli.roofs import roofs_command, table
from core.lab.roofs import kept
from core.lab.roofs.as_json import from_json, to_json
from core.lab.roofs.kept import file_of, keep, kept_roofs
from core.lab.roofs.machine import this_machine
from core.refusal import Refusal
from tests.command import ROOT, Done, called, started
from tests.roofs import FakeRunner, reading, roofs_here, roofs_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TBT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "_unwritten", {})
    return tmp_path / "cache"


def asked(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["roofs", *arguments])


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    written = capsys.readouterr()
    assert written.err == ""
    value: dict[str, Any] = json.loads(written.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return value


def test_what_is_kept_is_printed_and_nothing_is_measured() -> None:
    assert keep(roofs_here())
    done = started("roofs", "--json")
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout) == to_json(roofs_here())


def test_nothing_kept_it_is_measured_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    runner = FakeRunner()
    roofs_command(asked("--json"), runner)
    record = said(capsys)
    assert runner.asked and from_json(record) == kept_roofs()
    assert math.isfinite(record["read_bytes_per_s"]) and record["machine"]["torch"] == this_machine().torch
    again = FakeRunner()
    roofs_command(asked("--json"), again)
    assert said(capsys) == record and not again.asked


def test_again_measures_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert keep(roofs_here())
    runner = FakeRunner()
    roofs_command(asked("--json", "--again"), runner)
    assert runner.asked and from_json(said(capsys)) == kept_roofs() != roofs_here()


def test_what_failed_replaces_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert keep(roofs_here())
    failing = FakeRunner(fails=Refusal("roofs.probe_failed", roof="curve", kernel="sum", status=1))
    with pytest.raises(Refusal):
        roofs_command(asked("--json", "--again"), failing)
    assert capsys.readouterr().out == "" and kept_roofs() == roofs_here()


def test_for_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    runner = FakeRunner()
    roofs_command(asked(), runner)
    written = capsys.readouterr()
    assert len(written.err.splitlines()) == len(runner.asked)
    assert this_machine().processor in written.out and "GFLOP/s" in written.out and "16 KiB" in written.out


def test_the_best_of_each_roof_has_a_star_and_what_was_disturbed_says_so() -> None:
    lines = list(table(roofs_of()))
    starred = [line.split()[1:5] for line in lines if line.startswith("*")]
    assert starred == [
        ["read", "sum", "f32", "1"],
        ["copy", "copy", "f32", "2"],
        ["product", "plain", "f32", "2"],
        ["product", "plain", "bf16", "1"],
    ]
    assert [line.split()[1] for line in lines if line.endswith("disturbed")] == ["sum"]
    assert "20.0" in next(line for line in lines if line.startswith("* read"))
    on_card = roofs_of(
        machine=this_machine(), readings=(*roofs_of().readings, reading("product", 1e15, "f16")), curve=()
    )
    assert any("1,000,000.0" in line for line in table(on_card))


def test_where_it_cannot_be_kept_it_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write_text("a file where the folder should be")
    roofs_command(asked("--json"), FakeRunner())
    written = capsys.readouterr()
    assert str(folder) in written.err and len(written.err.splitlines()) == 1 and json.loads(written.out)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: called("roofs", "--model", "x"),
        lambda: called("roofs", "--again", "now"),
        lambda: started("roofs", TBT_DEVICE="gpu"),  # a process chooses its device once
        lambda: started("roofs", TBT_DEVICE="cuda:99"),
    ],
)
def test_what_cannot_be_is_one_sentence(ask: Callable[[], Done]) -> None:
    done = ask()
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1


def test_arguments_are_checked_before_torch_is_imported() -> None:
    code = """
import sys
from core.__main__ import main
sys.argv = ["core", "roofs", "--no"]
try:
    main()
except SystemExit:
    print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_broken_file_is_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    file_of(this_machine()).parent.mkdir(parents=True)
    file_of(this_machine()).write_text("{")
    runner = FakeRunner()
    roofs_command(asked("--json"), runner)
    assert runner.asked and from_json(said(capsys)) == kept_roofs()
