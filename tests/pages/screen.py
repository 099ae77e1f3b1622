"""What stands on the screen of an AppTest session, read from the HTML that was sent."""

from __future__ import annotations

import re
from html import unescape

from streamlit.testing.v1 import AppTest


def html(session: AppTest) -> str:
    """All HTML of the page, one block after another."""
    return "\n".join(block.proto.body for block in session.get("html"))


def text(session: AppTest) -> str:
    """What a reader sees of it."""
    return unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", html(session), flags=re.DOTALL))


def chips(session: AppTest, kind: str) -> list[str]:
    """The labels of the chips of a kind: "prompt", "produced" or "new"."""
    return [unescape(label) for label in re.findall(rf'tbt-chip tbt-{kind}"[^>]*><bdi>(.*?)</bdi>', html(session))]


def ledger(session: AppTest) -> list[list[str]]:
    """The ledger's rows, each cell as text."""
    table = re.search(r'<table class="tbt-table">.*?</table>', html(session), re.DOTALL)
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", table.group(0)) if table else []
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row.split("</td><td>")] for row in rows]


def press(session: AppTest, action: str) -> AppTest:
    """Presses a button and lets the page answer."""
    session.button(key=action).click().run()
    assert not session.exception
    return session


def enabled(session: AppTest) -> set[str]:
    """The actions whose buttons can be pressed."""
    return {str(button.key) for button in session.button if not button.disabled}
