"""The modules of the batch's view by themselves: pure functions of the route's answer, in the browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.engine.status import BatchPoint, Doing, Status
from core.words import LANGUAGES
from pages.shared.batch import status_json
from pages.shared.bundle import bundle
from tests.statuses import KV_PER_TOKEN, WEIGHTS, alone, forty, points, queued, seat, seven, status

Call = Callable[..., Any]
SAY = f"""
  const {{ wordsOf }} = await import('/{bundle().path}/stage/words.js');
  const t = await wordsOf(given.language, `${{location.origin}}/{bundle().path}/batch/main.js`);
"""


def line(module: Call, made: Status, *, language: str = "en", failures: int = 0) -> str:
    """The whole line as a text, B left out."""
    body = f"""{SAY} const {{ momentOf }} = await import('/{bundle().path}/batch/moment.js');
      const moment = momentOf(given.status, 'me');
      return m.lineOf(moment, given.failures, t, 'decimal').parts.map(([, text]) => text).join(' · ')"""
    given = {"status": status_json(made), "language": language, "failures": failures}
    return str(module("../batch/line.js", body, given)).replace("\u0001", "B")


def paced(batch: int) -> Status:
    """Five who decode at a leisurely pace, so that a pass has fewer of them."""
    made = seven("me")
    return replace(made, models=(replace(made.models[0], batch=batch),))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (alone("me"), "Only you are here · you decode alone (B) · 70 tokens/s"),
        (replace(alone("me"), seats=()), "Only you are here · nothing is being decoded · caches"),
        (status((seat("a", Doing.DECODING, 5),), points(1)), "2 people share this model · one decodes now (B)"),
        (paced(2), "5 are decoding, 2 in the newest pass (B)"),
        (paced(0), "5 wait for their next step"),
        (queued("me"), "Your prefill waits for memory: place 3 in the queue."),
        (queued("else"), "11 people share this model"),
        (forty("me"), "queue 4"),
    ],
)
def test_the_line(module: Call, made: Status, said: str) -> None:
    assert said in line(module, made)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_answer_that_does_not_come_is_no_news(module: Call, language: str) -> None:
    said = [line(module, seven("me"), language=language, failures=failures) for failures in (0, 1, 2)]
    assert said[0] == said[1] != said[2] and "7" not in said[2]


def test_rows_keep_their_places_and_own_ones_come_first(module: Call) -> None:
    body = """return given.map((seats) => m.momentOf({ seats, models: [] }, 'me').seats.map(({ tag }) => tag))"""
    seats = status_json(seven("me"))["seats"]
    longer = [entry | {"n_tokens": 1000 - entry["n_tokens"], "doing": "resting"} for entry in reversed(seats)]
    one, other = module("../batch/moment.js", body, [seats, longer])
    assert one == other == ["me", "a1", "a2", "a3", "a4", "b1", "b2"]


def point(batch: int, step_s: float, n_passes: int = 40) -> BatchPoint:
    return BatchPoint(batch=batch, n_passes=n_passes, step_s=step_s, tokens_per_s=batch / step_s)


@pytest.mark.parametrize(
    ("measured", "is_takeaway", "said"),
    [
        ((), False, "No decode step has been measured yet."),
        ((point(1, 0.01),), False, "Only B = 1 has been measured"),
        ((point(3, 0.01),), False, "Only B = 3"),
        ((point(1, 0.01), point(2, 0.012, n_passes=1)), False, "B = 2"),
        (
            (point(8, 0.021), point(1, 0.01), point(4, 0.015)),
            True,
            "At B = 8 a step takes 2.1 times as long as at B = 1 and yields 3.8 times",
        ),
        ((point(2, 0.01), point(4, 0.01)), True, "At B = 4 a step takes 1.0 times as long as at B = 2"),
    ],
)
def test_the_sentence_says_no_more_than_the_points(
    module: Call, measured: tuple[BatchPoint, ...], is_takeaway: bool, said: str
) -> None:
    by_batch = status_json(status((), measured))["models"][0]["by_batch"]
    body = f"{SAY} return m.sentenceOf(given.points, t)"
    proves, text = module("../batch/moment.js", body, {"points": by_batch, "language": "en"})
    assert proves is is_takeaway and said in text


def test_the_step_fills_its_width_to_scale_or_says_how_much_wider_the_caches_are(module: Call) -> None:
    cases = [[KV_PER_TOKEN * n for n in lengths] for lengths in ([61], [30, 900], [100] * 40, [200_000])]
    for caches in cases:
        drawn = module("../batch/step.js", "return m.laidOut(given[0], given[1], 600)", [WEIGHTS, caches])
        assert drawn["weights"] + sum(drawn["caches"]) == pytest.approx(592)
        for bytes_, width in zip(caches, drawn["caches"], strict=True):
            assert width / drawn["weights"] == pytest.approx(drawn["times"] * bytes_ / WEIGHTS)
        assert sum(drawn["caches"]) >= 24 and (drawn["times"] == 1 or sum(drawn["caches"]) < 0.7 * 592)


def test_ticks_are_round_and_few(module: Call) -> None:
    body = "return given.map(([largest, most, least]) => m.axisOf(largest, most, least).ticks)"
    cases = [[4, 8, 1], [29, 8, 1], [100, 8, 1], [24.5, 4, 0], [0.07, 4, 0], [481.6, 4, 0]]
    assert module("../batch/curve.js", body, cases) == [
        [0, 1, 2, 3, 4],
        [0, 5, 10, 15, 20, 25],
        [0, 20, 40, 60, 80, 100],
        [0, 10, 20],
        [0, 0.02, 0.04, 0.06],
        [0, 200, 400],
    ]
