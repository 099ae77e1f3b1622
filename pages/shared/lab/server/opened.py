"""The servers' sweeps that a session has opened: files, read as a stranger's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import streamlit as st

from core.estimate import catalogue
from core.estimate.shape import ModelShape
from core.lab.remote.findings import ServerFindings, server_findings
from core.lab.remote.record import LONGEST_NAME, Record, read_record
from core.refusal import Refusal

MOST_OPENED = 4
_OPENED, _NUMBER, SHOWN = "lab_server_files", "lab_server_number", "lab_server_shown"


@dataclass(frozen=True)
class ServerSweep:
    """A file with all that follows from it; `number` tells those of a session apart."""

    record: Record
    file: str
    number: int = 0

    @cached_property
    def found(self) -> ServerFindings:
        """What its points say."""
        return server_findings(self.record.points)

    @cached_property
    def shape(self) -> ModelShape | None:
        """The model, where the file names one of the catalogue."""
        try:
            return catalogue.shape(self.record.model)
        except Refusal:
            return None

    @property
    def served(self) -> str:
        """What the server, or else the file, calls the model."""
        return self.record.head.get("served model", "") or self.record.model

    @property
    def title(self) -> str:
        """What it is called among the others."""
        head = self.record.head
        parts = (self.file, self.served[:LONGEST_NAME], head.get("endpoint", "")[:LONGEST_NAME], head.get("date", ""))
        return " · ".join(part for part in parts if part)


def read_server_file(file: str, text: str, number: int = 0) -> ServerSweep:
    """A sweep out of a file's text. Raises Refusal for what is none."""
    short = file[:LONGEST_NAME]
    return ServerSweep(read_record(text, short), short, number)


def opened_sweeps() -> list[ServerSweep]:
    """What this session has open, newest first."""
    return list(st.session_state.get(_OPENED, []))


def open_sweep(file: str, text: str) -> None:
    """Opens one more; the oldest is put away where there are too many. Raises Refusal."""
    number = st.session_state.get(_NUMBER, 0) + 1
    sweep = read_server_file(file, text, number)
    st.session_state[_NUMBER], st.session_state[SHOWN] = number, number
    st.session_state[_OPENED] = [sweep, *opened_sweeps()][:MOST_OPENED]


def close_sweep(number: int) -> None:
    """Puts one away."""
    st.session_state[_OPENED] = [sweep for sweep in opened_sweeps() if sweep.number != number]
