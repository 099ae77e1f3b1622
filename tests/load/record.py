"""What a tab knows of its visitor's run: the frames that arrived, put together as the stage puts them together."""

from __future__ import annotations

from typing import Any


class Mixed(AssertionError):
    """A frame that is somebody else's, or of another run than the one on the screen."""


class Record:
    """One run as far as it has arrived, and how often something was missing on the way."""

    def __init__(self) -> None:
        self.visit, self.run, self.version = "", -1, -1
        self.steps: list[dict[str, Any]] = []
        self.tail = ""
        self.n_holes = 0

    def take(self, header: dict[str, Any], *, streamed: bool) -> bool:
        """Takes the steps of a frame. False when steps before them are missing here: the tab asks once more.

        A page may begin a new run; a stream only goes on with the one it was opened for, and with no other visit.
        """
        if streamed and (header["visit"], header["run"]) != (self.visit, self.run):
            raise Mixed("a stream brought a step of another run")
        if self.visit and header["visit"] != self.visit:
            raise Mixed("a page brought the run of another visit")
        if header["run"] != self.run:
            self.run, self.version, self.steps = header["run"], -1, []
        self.visit = header["visit"]
        if header["version"] < self.version:
            return True  # said before what has arrived since
        if header["start"] > len(self.steps):
            self.n_holes += 1
            return False
        self.version = header["version"]
        self.steps[header["start"] :] = header["steps"]
        self.tail = header["facts"]["tail"] if header["facts"] else ""
        return True

    @property
    def ids(self) -> list[int]:
        """The tokens produced so far."""
        return [step["token"][0] for step in self.steps if step["token"]]

    @property
    def text(self) -> str:
        """The text produced so far."""
        return "".join(step["text"] for step in self.steps) + self.tail
