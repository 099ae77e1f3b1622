"""The log for operators: one line of JSON an event on stderr, with nothing in it that a visitor wrote.

A line has `time` (UTC), `level`, `logger`, `event` (a short sentence) and what the event comes with; one of a failure
has `error` (the exception's type and where it was raised) and `traceback` (files, lines, functions). An exception's own
text is left out, here and in what Streamlit and the web server log: it may quote what was computed with.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from core.engine.trace import Phase

LEVEL = "TBT_LOG_LEVEL"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
OURS = ("tbt", "core", "pages")
"""The loggers whose lines are ours: what the engine and visitors do, and every module's own."""
PAGE_FAILED = "Uncaught app execution"
"""What Streamlit says of a page that failed, before `apologise` says it with us."""
_PLAIN = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}

logger = logging.getLogger("tbt")


class JsonLine(logging.Formatter):
    """A record as one line of JSON. What is given as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error": {"type": type_of(error), "where": where(error)}, "traceback": told(error)}
        return json.dumps(fields, ensure_ascii=False, default=str)


class ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at the moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(JsonLine())

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Asked for with each line."""
        return sys.stderr


class LogListener:
    """A `Listener` of the engine that logs what an operator should know. Steps that succeed are only counted."""

    def stepped(self, model: str, phase: Phase, batch: int, seconds: float, n_tokens: int) -> None:
        """Says nothing: there are hundreds a second."""

    def failed(self, model: str, error: BaseException) -> None:
        """A step failed: of which model, what, and where."""
        logger.error("A step failed.", exc_info=error, extra={"model": model})

    def dropped(self, model: str, held_bytes: int) -> None:
        """A cache was given back."""
        logger.info("A resting cache was given back.", extra={"model": model, "held_bytes": held_bytes})

    def restarted(self, error: BaseException) -> None:
        """The engine's thread died."""
        logger.error("The engine's thread died and was begun again.", exc_info=error)


def set_up_logging() -> None:
    """Sends our loggers' lines to stderr as JSON, from the level TBT_LOG_LEVEL (INFO) on. Again changes nothing."""
    asked = os.environ.get(LEVEL, "").strip().upper()
    for name in OURS:
        ours = logging.getLogger(name)
        ours.handlers = [ToStderr()]
        ours.propagate = False
        ours.setLevel(asked if asked in LEVELS else logging.INFO)
    if asked and asked not in LEVELS:
        logger.warning("TBT_LOG_LEVEL is none of %s: INFO is used.", ", ".join(LEVELS))
    if logging.getLogRecordFactory() is not reticent:
        logging.setLogRecordFactory(reticent)
    streamlit_says = logging.getLogger("streamlit.error_util")
    if not any(each is is_news for each in streamlit_says.filters):
        streamlit_says.addFilter(is_news)
    threading.excepthook = thread_failed


def reticent(*given: Any, **named: Any) -> logging.LogRecord:
    """A log record of anybody's: should it be printed with its exception, types and places are all there is to read."""
    record = logging.LogRecord(*given, **named)
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = told(record.exc_info[1])
    return record


def is_news(record: logging.LogRecord) -> bool:
    """Whether Streamlit says something that we do not say ourselves."""
    return record.msg != PAGE_FAILED


def task_failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For an event loop: a task's failure that nobody waited for, without its text."""
    logger.error("A task failed and nobody waited for it.", exc_info=context.get("exception"))


def thread_failed(failure: threading.ExceptHookArgs) -> None:
    """For threads: a failure that ended one."""
    if failure.exc_value is not None and failure.exc_type is not SystemExit:
        logger.error("A thread failed.", exc_info=failure.exc_value)


def type_of(error: BaseException) -> str:
    """The exception's type by its full name; of a built-in one just the name."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def where(error: BaseException) -> str:
    """File, line and function where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno} {frames[-1].name}" if frames else ""


def told(error: BaseException) -> str:
    """A traceback in Python's own form, oldest cause first, without the exceptions' texts."""
    parts: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        lines = traceback.format_list(traceback.extract_tb(cause.__traceback__))
        parts.append(f"Traceback (most recent call last):\n{''.join(lines)}{type_of(cause)}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n\n".join(reversed(parts))


def _short(file: str) -> str:
    """A path below the folder the server runs in, or as it is."""
    return os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
