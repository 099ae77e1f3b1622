"""The files of a Hugging Face directory: found inside it, of bounded size, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.model.files.json_file import parse_json_object
from core.refusal import Refusal


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Turns what the operating system has against reading into a refusal that names the file alone."""
    try:
        yield
    except OSError:
        raise Refusal("model.file_unreadable", file=file) from None


class ModelFolder:
    """A directory whose files are read by their plain names and never from outside it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._roots = [self.path]
        # Hugging Face's download cache: the files of snapshots/REVISION are links into the blobs folder beside it.
        if self.path.parent.name == "snapshots":
            self._roots.append(self.path.parent.parent / "blobs")

    @property
    def name(self) -> str:
        """The directory's own name."""
        return self.path.name

    def find(self, file: str) -> Path | None:
        """Where a file really is, or None if there is none of this name.

        Raises:
            Refusal: it is no ordinary file, or a link that leads out of the directory.
        """
        with readable(file):
            path = self.path / file
            if not path.exists():
                return None
            resolved = path.resolve()
            if not resolved.is_file() or not any(resolved.is_relative_to(root) for root in self._roots):
                raise Refusal("model.file_outside", file=file)
            return resolved

    def read(self, file: str, *, most_bytes: int) -> bytes | None:
        """All bytes of a file of at most `most_bytes`, or None if there is none of this name."""
        path = self.find(file)
        if path is None:
            return None
        with readable(file), path.open("rb") as opened:
            data = opened.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise Refusal("model.file_too_large", file=file, most=most_bytes >> 20)
        return data

    def read_json(self, file: str, *, most_bytes: int = 1 << 20) -> dict[str, Any] | None:
        """The object in a JSON file, or None if there is none of this name."""
        data = self.read(file, most_bytes=most_bytes)
        return None if data is None else parse_json_object(data, file)

    def read_text(self, file: str, *, most_bytes: int) -> str | None:
        """A file of UTF-8, or None if there is none of this name."""
        data = self.read(file, most_bytes=most_bytes)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refusal("model.file_not_text", file=file) from None
