"""A learner's words for a report, as they are when it is made."""

from __future__ import annotations

from threading import Timer

from pages.shared.lab.own_text import ON_ITS_WAY_SECONDS, OwnText


def test_what_is_on_its_way_still_counts() -> None:
    text = OwnText("Why?", "")
    arriving = Timer(ON_ITS_WAY_SECONDS / 5, lambda: setattr(text, "conclusion", "Because."))
    arriving.start()
    assert text.newest() == ("Why?", "Because.")
