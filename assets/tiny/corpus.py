"""What the tiny model reads: Tang poems from Debian's `fortunes-zh`, and the plain text beside this file.

The poems are fetched when the model is trained and are not part of the repository. `apt-get download` needs no root;
where there is no apt, `--deb FILE` names a copy of the package.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "fortunes-zh"
POEM_FILE = "tang300"
TEXT_FOLDER = Path(__file__).resolve().parent / "text"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COUPLET = re.compile(r"([\u4e00-\u9fff]+[，、。？！；：])([\u4e00-\u9fff]+[，。？！；：])")
_SENTENCE = re.compile(r"[^。？！.?!]+[。？！.?!]+\s*|[^。？！.?!]+$")


@dataclass(frozen=True, slots=True)
class Couplet:
    """A line of verse of exactly two halves, each with the mark that closes it."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Poem:
    """A poem as the package prints it: title in 《》, author, lines."""

    title: str
    author: str
    lines: tuple[str, ...]

    @property
    def heading(self) -> str:
        return f"{self.title}{self.author}\n"

    @property
    def body(self) -> str:
        return "".join(self.lines)

    @property
    def couplets(self) -> tuple[Couplet, ...]:
        matches = (_COUPLET.fullmatch(line) for line in self.lines)
        return tuple(Couplet(match[1], match[2]) for match in matches if match)


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph of plain text, cut into sentences (each with the spaces that follow it)."""

    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.sentences)


def fetch_poem_text(deb: Path | None) -> str:
    """The poem file of the package, from `deb` or through apt. Exits with one sentence where neither is to be had."""
    if deb is not None:
        try:
            return poem_text(deb.read_bytes())
        except OSError:
            raise SystemExit(f"{deb.name} cannot be read: give --deb the package's file.") from None
    with TemporaryDirectory() as folder:
        try:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True)
            package = next(Path(folder).glob("*.deb"))
        except (OSError, subprocess.CalledProcessError, StopIteration):
            raise SystemExit(
                f"apt-get could not download {PACKAGE}: fetch the package by hand and name it with --deb FILE."
            ) from None
        return poem_text(package.read_bytes())


def poem_text(deb: bytes) -> str:
    """Unpacks the poem file from the bytes of a .deb. Exits with one sentence if it is not in there."""
    for name, content in _archive_members(deb):
        if not name.startswith("data.tar"):
            continue
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for member in tar:
                    if member.isfile() and Path(member.name).name == POEM_FILE:
                        file = tar.extractfile(member)
                        assert file is not None
                        return file.read().decode("utf-8")
        except tarfile.ReadError:
            raise SystemExit(f"This Python cannot unpack {name}: take Debian's own package, which uses xz.") from None
    raise SystemExit(f"The package holds no file {POEM_FILE}: take {PACKAGE} 2.98 or near it.")


def _archive_members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents in an `ar` archive: headers of 60 bytes, contents padded to an even length."""
    offset = len(b"!<arch>\n")
    while offset + 60 <= len(archive):
        header = archive[offset : offset + 60]
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        yield name, archive[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2


def parse_poems(text: str) -> list[Poem]:
    """Poems are separated by lines with a single %; the first two lines of each are title and author."""
    poems = []
    for block in _COLOUR.sub("", text).split("\n%\n"):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if len(lines) > 2:
            poems.append(Poem(lines[0], lines[1].removeprefix("作者："), tuple(lines[2:])))
    return poems


def read_passages() -> list[Passage]:
    """Every paragraph of the files in `text/`, in the order of their names."""
    return [
        Passage(tuple(_SENTENCE.findall(paragraph.strip())))
        for file in sorted(TEXT_FOLDER.glob("*.txt"))
        for paragraph in file.read_text(encoding="utf-8").split("\n\n")
    ]
