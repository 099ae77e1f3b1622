"""A learner's words for a report, as they are when it is made."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pages.shared.lab.own_text import ON_ITS_WAY_SECONDS, OwnText


def test_what_is_on_its_way_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    text, slept = OwnText("Why?", ""), list[float]()

    def arrives_meanwhile(seconds: float) -> None:
        slept.append(seconds)
        text.conclusion = "Because."

    monkeypatch.setattr("pages.shared.lab.own_text.time", SimpleNamespace(sleep=arrives_meanwhile))
    assert text.newest() == ("Why?", "Because.")
    assert slept == [ON_ITS_WAY_SECONDS]
