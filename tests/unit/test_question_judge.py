"""How near a prediction came, on a log scale."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.questions.judge import Verdict, factor, judge, mean_factor
from core.questions.question import Amount, Choice, Curve, Prediction, Table

AMOUNT, CURVE = Amount("times"), Curve(lambda given: (1, 2, 3))
CHOICE, TABLE = Choice(("a", "b")), Table(("r", "s", "t", "u"), ("a", "b"))
positive = st.floats(1e-9, 1e15)


@pytest.mark.parametrize(
    ("said", "right", "verdict"),
    [
        (100.0, 100.0, Verdict.CLOSE),
        (125.0, 100.0, Verdict.CLOSE),
        (80.0, 100.0, Verdict.CLOSE),
        (126.0, 100.0, Verdict.NEAR),
        (200.0, 100.0, Verdict.NEAR),
        (50.0, 100.0, Verdict.NEAR),
        (49.0, 100.0, Verdict.FAR),
        (201.0, 100.0, Verdict.FAR),
        (0.0, 100.0, Verdict.FAR),
        (0.0, 0.0, Verdict.CLOSE),
        (1e15, inf, Verdict.FAR),
    ],
)
def test_numbers(said: float, right: float, verdict: Verdict) -> None:
    assert judge(AMOUNT, said, right) is verdict


@given(positive, positive)
def test_twice_is_as_far_as_half(said: float, right: float) -> None:
    assert factor(said, right) == pytest.approx(factor(right, said)) and factor(said, right) >= 1


@given(positive, positive, st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(said: float, right: float, scale: float) -> None:
    assert factor(said * scale, right * scale) == pytest.approx(factor(said, right))


def test_curves_by_their_mean_on_the_log_scale() -> None:
    assert mean_factor((2.0, 2.0), (1.0, 4.0)) == pytest.approx(2)
    assert judge(CURVE, (1.0, 1.0), (1.0, 1.0)) is Verdict.CLOSE
    assert judge(CURVE, (2.0, 0.5), (1.0, 1.0)) is Verdict.NEAR
    assert judge(CURVE, (1.0, 0.0), (1.0, 1.0)) is Verdict.FAR
    assert judge(CURVE, (9.0, 9.0), (1.0, 1.0)) is Verdict.FAR


def test_choices_and_tables() -> None:
    assert judge(CHOICE, "a", "a") is Verdict.CLOSE and judge(CHOICE, "b", "a") is Verdict.FAR
    right = ("a", "a", "a", "a")
    said = [("a", "a", "a", "a"), ("a", "a", "b", "b"), ("a", "b", "b", "b")]
    assert [judge(TABLE, one, right) for one in said] == [Verdict.CLOSE, Verdict.NEAR, Verdict.FAR]


@pytest.mark.parametrize(("prediction", "said"), [(AMOUNT, "a"), (CHOICE, 1.0), (CURVE, 1.0), (TABLE, "a")])
def test_what_is_no_answer_is_not_judged(prediction: Prediction, said: float | str) -> None:
    with pytest.raises(ValueError):
        judge(prediction, said, said)
