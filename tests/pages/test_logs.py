"""The operators' log: each line is JSON, a failure tells type and place, and nobody's prompt is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.engine.trace import Phase
from pages.shared import logs
from pages.shared.keep import Keeper
from pages.shared.logs import LogListener, set_up_logging, task_failed, told
from pages.shared.started import Slot
from pages.shared.visit import Visit

PROMPT = "xyzzy-nobody-else-may-read-this"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Logging set up as in a server; gives all lines that went to stderr, parsed. All is put back at the end."""
    factory, hook = logging.getLogRecordFactory(), threading.excepthook
    ours = [logging.getLogger(name) for name in logs.OURS]
    before = [(each.handlers, each.propagate, each.level) for each in ours]
    said: list[dict[str, Any]] = []

    def so_far() -> list[dict[str, Any]]:
        said.extend(json.loads(line) for line in capsys.readouterr().err.splitlines())
        return said

    set_up_logging()
    yield so_far
    logging.setLogRecordFactory(factory)
    threading.excepthook = hook
    for each, (handlers, propagate, level) in zip(ours, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def failure() -> Exception:
    """An exception with a traceback and a cause, both of which quote a prompt."""
    try:
        try:
            raise KeyError(PROMPT)
        except KeyError as cause:
            raise ValueError(f"cannot go on with {PROMPT}") from cause
    except ValueError as error:
        error.add_note(PROMPT)
        return error


def test_what_the_engine_tells(lines: Lines) -> None:
    listener = LogListener()
    listener.stepped("tiny", Phase.DECODE, 4, 0.01, 4)
    listener.dropped("tiny", 4096)
    listener.failed("tiny", failure())
    listener.restarted(failure())
    dropped, failed, restarted = lines()
    assert dropped["event"] == "A resting cache was given back." and dropped["held_bytes"] == 4096
    assert (dropped["level"], dropped["logger"], dropped["model"]) == ("INFO", "tbt", "tiny")
    assert dropped["time"].endswith("+00:00") and "traceback" not in dropped
    for line in (failed, restarted):
        assert line["level"] == "ERROR" and line["error"]["type"] == "ValueError"
        assert line["error"]["where"].startswith("tests/pages/test_logs.py:")
        assert line["error"]["where"].endswith(" failure")
        assert line["traceback"].index("KeyError") < line["traceback"].index("ValueError")
        assert "raise ValueError(" in line["traceback"] and PROMPT not in json.dumps(line)


def test_who_comes_and_goes_is_a_number(lines: Lines) -> None:
    keeper, visit, slot = Keeper(), Visit(), Slot()
    keeper.hold(visit, slot, {"prompt": PROMPT})
    keeper.hold(visit, slot, {"prompt": PROMPT})
    keeper.hold(Visit(), Slot(), {})
    keeper.left(visit.key, slot)
    keeper.left(visit.key, slot)
    told = [(line["event"], line["visitors"]) for line in lines()]
    assert told == [("A visitor came.", 1), ("A visitor came.", 2), ("A visitor left.", 1)]
    assert visit.key not in json.dumps(lines()) and PROMPT not in json.dumps(lines())


def test_modules_and_pages_that_fail_go_the_same_way(lines: Lines) -> None:
    logging.getLogger("pages.shared.trouble").error("A page failed.", exc_info=failure())
    logging.getLogger("core.engine.engine").warning("The setting %s is left out.", "TBT_X", extra={"setting": "TBT_X"})
    page, setting = lines()
    assert page["event"] == "A page failed." and page["logger"] == "pages.shared.trouble"
    assert page["error"]["type"] == "ValueError" and PROMPT not in json.dumps(page)
    assert setting["event"] == "The setting TBT_X is left out." and setting["setting"] == "TBT_X"


def test_others_print_no_text_of_an_exception_either(lines: Lines) -> None:
    printed = io.StringIO()
    theirs = logging.getLogger("uvicorn.error")
    handler = logging.StreamHandler(printed)
    theirs.addHandler(handler)
    try:
        theirs.error("Exception in ASGI application", exc_info=failure())
    finally:
        theirs.removeHandler(handler)
    assert "ValueError" in printed.getvalue() and "test_logs.py" in printed.getvalue()
    assert PROMPT not in printed.getvalue()


def test_threads_and_tasks_that_nobody_waits_for(lines: Lines) -> None:
    def fail() -> None:
        raise failure()

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    loop = asyncio.new_event_loop()
    task_failed(loop, {"message": PROMPT, "exception": failure()})
    loop.close()
    assert [line["event"] for line in lines()] == ["A thread failed.", "A task failed and nobody waited for it."]
    assert PROMPT not in json.dumps(lines())


def test_the_operator_chooses_the_level(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.LEVEL, "error")
    set_up_logging()
    LogListener().dropped("tiny", 1)
    assert lines() == []
    LogListener().failed("tiny", failure())
    assert len(lines()) == 1
    monkeypatch.setenv(logs.LEVEL, "loud")
    set_up_logging()
    LogListener().dropped("tiny", 1)
    assert [line["level"] for line in lines()] == ["ERROR", "WARNING", "INFO"]


def test_a_traceback_ends_where_causes_go_round() -> None:
    first, second = ValueError(PROMPT), TypeError(PROMPT)
    first.__cause__, second.__cause__ = second, first
    assert told(first).count("ValueError") == 1 and PROMPT not in told(first)
