"""What stands on the screen of an AppTest session: the HTML that was sent, and the frame the stage draws from."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from streamlit.testing.v1 import AppTest

from pages.shared import stage, wire
from tests.pages.conftest import FRAME

Step = dict[str, Any]


def arrive(page: str, language: str, /, **link: str) -> AppTest:
    """A session that began with a link, on a page."""
    session = AppTest.from_file(str(FRAME), default_timeout=120)
    session.query_params["lang"] = language
    for name, word in link.items():
        session.query_params[name] = word
    session.run()
    session.switch_page(page).run()
    assert not session.exception
    return session


def parts(session: AppTest) -> dict[str, dict[str, Any]]:
    """What the components of an estimate page were given, by their keys."""
    given = [json.loads(component.proto.json) for component in session.get("bidi_component")]
    return {part["key"]: part for part in given if "key" in part}


def html(session: AppTest) -> str:
    """All HTML of the page, one block after another."""
    return "\n".join(block.proto.body for block in session.get("html"))


def text(session: AppTest) -> str:
    """What a reader sees of it."""
    return unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", html(session), flags=re.DOTALL))


def frame(session: AppTest) -> tuple[dict[str, Any], bytes]:
    """The stage's newest frame: header and cells."""
    (component,) = stages(session)
    return wire.unpack(component.proto.bytes)


def stages(session: AppTest) -> list[Any]:
    """The components that are given a frame: the stage, once it is there."""
    return [component for component in session.get("bidi_component") if component.proto.bytes]


def header(session: AppTest) -> dict[str, Any]:
    return frame(session)[0]


def send(session: AppTest, action: str, **more: Any) -> AppTest:
    """What the browser sends for a click on what this session shows; the answer then holds all steps of the run."""
    shown = header(session)
    event = {
        "action": action,
        "visit": shown["visit"],
        "run": shown["run"],
        "seen": shown["version"],
        "have": 0,
        **more,
    }
    session.session_state[stage.HEARD] = event
    session.run()
    assert not session.exception
    return session


def press(session: AppTest, action: str) -> AppTest:
    """Presses a button and waits for its step, however long it takes."""
    send(session, action)
    while header(session)["busy"]:
        send(session, "look")
    return session


def ledger(session: AppTest) -> list[Step]:
    """The run's steps, all of them."""
    steps: list[Step] = header(send(session, "look"))["steps"]
    return steps


def produced(session: AppTest) -> list[str]:
    """The labels of the produced tokens."""
    return [step["token"][1] for step in ledger(session)]


def prompt_labels(session: AppTest) -> list[str]:
    """The labels of the prompt's tokens."""
    return [label for _, label, _ in header(send(session, "look")).get("prompt", [])]


def enabled(session: AppTest) -> set[str]:
    """The actions whose buttons can be pressed; none where there is no stage yet."""
    if not stages(session):
        return set()
    return {action for action, can in header(session)["can"].items() if can}


def notice(session: AppTest) -> str:
    """The sentence beside the buttons."""
    said = header(session)["notice"]
    return said["text"] if said else ""
