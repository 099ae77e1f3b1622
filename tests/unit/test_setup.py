"""The set-up behind `make`: each failure is one sentence, and a half-made environment never stays."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tools import checks, chromium, environment, targets
from tools.address import Address
from tools.environment import APP, DEVELOPMENT, SMOLLM2, Environment
from tools.problem import CutOff, Problem, Unreachable, pip_problem, sentence_of

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "tools" / "make.py"


def executable(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The set-up alone, in a folder whose name has a space, with nothing to install."""
    root = tmp_path / "a checkout"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", root)
    for name in (*DEVELOPMENT.files, *SMOLLM2.files):
        (root / name).write_text("# nothing\n", encoding="utf-8")
    return root


def venv_folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob(".venv*"))


def run_target(root: Path, target: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/make.py", target]
    return subprocess.run(
        command, cwd=root, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300
    )


def assert_one_sentence(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        yield listening


@pytest.fixture
def taken_port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


# --- the Python that make found


def test_the_entry_parses_under_python_3_6() -> None:
    ast.parse(ENTRY.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_is_told_which_one_is_needed() -> None:
    pretend = (
        "import runpy, sys; sys.version_info = (3, 6, 15, 'final', 0); "
        f"sys.argv = ['make', 'run']; runpy.run_path({str(ENTRY)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True)
    assert_one_sentence(done, "Python 3.6", "3.11", "PYTHON=")


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_the_venv_module_names_the_package(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Problem, match="apt install python3-venv"):
        environment.require_venv_module()


# --- where it listens


def test_a_taken_port_is_found_before_anything_is_installed(checkout: Path, taken_port: int) -> None:
    done = run_target(checkout, "run", PORT=str(taken_port))
    assert_one_sentence(done, f"port {taken_port} is taken", f"PORT={taken_port + 1}")
    assert venv_folders(checkout) == []


@pytest.mark.parametrize("text", ["abc", "0", "-1", "65536", "8501.5", "1e3", "９０００", "99999999999"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="1 to 65535"):
        Address.from_settings({"PORT": text})


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(Problem, match=r"ADDRESS=192\.0\.2\.7"):
        Address(8501, "192.0.2.7").require_free()


def test_settings_reach_streamlit() -> None:
    assert Address.from_settings({}).streamlit_options() == ["--server.port", "8501"]
    chosen = Address.from_settings({"PORT": "8600", "ADDRESS": "127.0.0.1"})
    assert chosen.streamlit_options() == ["--server.port", "8600", "--server.address", "127.0.0.1"]
    assert chosen.describe() == "http://127.0.0.1:8600"


# --- pip's failures


@pytest.mark.parametrize(
    ("output", "kind", "part"),
    [
        ("WARNING: Retrying (Retry(total=0)) after connection broken\nERROR: No matching", Unreachable, "network"),
        ("ERROR: Could not install: [Errno 28] No space left on device: '/x'", CutOff, "disk is full"),
        ("ERROR: Could not install packages due to an OSError: [Errno 5] Input/output error", CutOff, "Errno 5"),
        ("ERROR: Could not find a version\nERROR: No matching distribution for x==1\nnote: see", Problem, "for x==1."),
        ("warming up\nsomething broke\n[notice] A new release\nWARNING: old", Problem, "something broke."),
        ("", Problem, "printed nothing"),
    ],
)
def test_pip_failures_become_one_sentence(output: str, kind: type[Problem], part: str) -> None:
    problem = pip_problem(output, 1)
    assert type(problem) is kind
    assert part in str(problem) and "\n" not in str(problem)


def test_file_errors_name_no_path() -> None:
    sentence = sentence_of(PermissionError(13, "Permission denied", "/some/where/.venv.new-7"))
    assert sentence.startswith(".venv.new-7 cannot be written") and "/some" not in sentence
    assert "disk is full" in sentence_of(OSError(28, "No space left on device"))


# --- the environment


def test_a_new_environment_is_renamed_into_place_and_works(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Environment(checkout)
    assert not made.has(APP)
    made.make()
    made.add(DEVELOPMENT)
    assert venv_folders(checkout) == [".venv"]
    assert made.has(APP) and made.has(DEVELOPMENT) and not made.has(SMOLLM2)

    said = subprocess.run([made.folder / "bin" / "pip", "--version"], capture_output=True, text=True, check=True)
    assert str(made.folder) in said.stdout
    assert ".venv.new" not in (made.folder / "bin" / "activate").read_text(encoding="utf-8")

    monkeypatch.setattr(environment, "_pip_install", lambda *_: pytest.fail("pip was called though all is there"))
    again = Environment(checkout)
    assert again.has(APP) and again.has(DEVELOPMENT)

    (checkout / "constraints.txt").write_text("# changed\n", encoding="utf-8")
    assert not again.has(APP) and not again.has(DEVELOPMENT)


def test_a_failed_install_leaves_nothing(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("no-such-package-as-this==1\n", encoding="utf-8")
    done = run_target(checkout, "run", PORT=str(free_port()), PIP_NO_INDEX="1")
    assert_one_sentence(done, "no-such-package-as-this==1")
    assert venv_folders(checkout) == []


def test_an_interrupted_install_leaves_nothing(checkout: Path, listener: socket.socket, taken_port: int) -> None:
    """It comes while pip waits for an index that is silent."""
    (checkout / "requirements.txt").write_text("no-such-package-as-this==1\n", encoding="utf-8")
    silent_index = {
        "PIP_INDEX_URL": f"http://127.0.0.1:{taken_port}",
        "PORT": str(free_port()),
        "no_proxy": "127.0.0.1",
    }
    command = [sys.executable, "tools/make.py", "run"]
    listener.settimeout(120)
    with (
        subprocess.Popen(command, cwd=checkout, env={**os.environ, **silent_index}, stderr=subprocess.PIPE) as process,
        listener.accept()[0],
    ):
        assert [name for name in venv_folders(checkout) if name.startswith(".venv.new-")]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert venv_folders(checkout) == []


def test_leftovers_of_a_killed_run_are_removed(checkout: Path) -> None:
    for name in (".venv.new-1", ".venv.old-1"):
        (checkout / name / "bin").mkdir(parents=True)
    Environment(checkout).remove_leftovers()
    assert venv_folders(checkout) == []


@pytest.mark.parametrize(("failure", "left_open"), [(CutOff, True), (Unreachable, False), (Problem, False)])
def test_only_a_cut_off_addition_is_taken_up_again(
    failure: type[Problem], left_open: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise failure("no.")

    monkeypatch.setattr(environment, "_pip_install", fail)
    made = Environment(checkout)
    made.folder.mkdir()
    with pytest.raises(failure):
        made.add(DEVELOPMENT)
    assert made.was_interrupted(DEVELOPMENT) is left_open
    assert not made.has(DEVELOPMENT)


def test_a_model_that_cannot_be_fetched_is_a_sentence_and_no_stop(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Environment(checkout)
    made.folder.mkdir()
    monkeypatch.setattr(Environment, "has", lambda _, packages: packages is APP)
    monkeypatch.setattr(Environment, "add", unreachable)
    targets.prepare(made, "run", for_development=False)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "tiny model" in said and "tries again" in said


def unreachable(*_: object) -> None:
    raise Unreachable("no network.")


# --- the tests' own run


@pytest.fixture
def only_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("TBT_CHROMIUM", raising=False)
    return folder


def test_a_chromium_that_does_not_start_is_passed_over(only_on_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chromium.installed() == ""
    executable(only_on_path / "chromium-browser", "#!/bin/sh\nexit 1\n")
    assert chromium.installed() == ""
    chrome = executable(only_on_path / "google-chrome", "#!/bin/sh\nexit 0\n")
    assert chromium.installed() == str(chrome)
    own = executable(only_on_path / "my own chromium", "#!/bin/sh\nexit 0\n")
    monkeypatch.setenv("TBT_CHROMIUM", str(own))
    assert chromium.installed() == str(own)


@pytest.mark.parametrize(
    ("browser", "failing", "status"),
    [
        ("/x/chromium", "", 0),
        ("/x/chromium", "ruff", 2),
        ("/x/chromium", "mypy", 2),
        ("/x/chromium", "pytest", 1),
        ("", "", 2),
    ],
)
def test_every_check_runs_whatever_the_others_say(
    browser: str,
    failing: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "log"
    python = executable(
        tmp_path / "python",
        f'#!/bin/sh\necho "$TBT_CHROMIUM: $@" >> "{log}"\necho $2 spoke\n[ "$2" != "{failing}" ]\n',
    )
    monkeypatch.setattr(chromium, "find_or_install", lambda _: browser)
    assert checks.check(python, tmp_path) == status
    ran = log.read_text(encoding="utf-8").splitlines()
    assert [line.split(" ")[2] for line in ran[:2]] == ["ruff", "ruff"]
    assert {line.split(" ")[2] for line in ran[2:]} == {"mypy", "pytest"} and len(ran) == 4
    assert f"{browser}: -m {' '.join(checks.TESTS)}" + ("" if browser else " -m not browser") in ran
    said = capfd.readouterr()
    assert "mypy spoke" in said.out
    assert (f"{failing} " in said.err) == (failing in ("ruff", "mypy")) if failing else "failed" not in said.err


@pytest.mark.parametrize("status", [0, 2])
def test_ci_ends_on_the_closing_line_of_pytest(status: int, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    closing = "=========== 12 passed, 1 deselected in 61.25s (0:01:01) ==========="
    make = f"#!/bin/sh\necho 'mypy: 3 files in 1s'\necho '{closing}'\necho 'make: more' >&2\nexit {status}\n"
    executable(tmp_path / "make", make)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", tmp_path / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == closing
