"""Page 7's progress beyond a session, and a link to a question with its dials: nobody else's, and nothing forged."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.questions.judge import Verdict
from core.questions.registry import QUESTIONS
from core.words import sentence
from pages.shared.keep import KEPT_SECONDS, MOST_LEFT
from pages.shared.question_settings import dial_key
from pages.shared.questions.kept import MOST_KEPT, ProgressKeeper, progress_keeper
from pages.shared.questions.progress import Answered, Pledge, Progress
from pages.shared.questions.tab import take_back
from tests.pages.screen import arrive, text

PAGE = "7_questions.py"


def said(number: float) -> Progress:
    return Progress({"dense": Pledge("dense", QUESTIONS["dense"].given, number)}, {})


def test_progress_is_kept_for_ten_minutes_after_its_visitor_left() -> None:
    clock = [0.0]
    keeper, progress = ProgressKeeper(now=lambda: clock[0]), said(2.0)
    keeper.hold("one", progress)
    clock[0] = 10 * KEPT_SECONDS  # while the visitor is here no time runs
    assert keeper.of("one") is progress  # for a duplicated tab, too
    keeper.left("one")
    clock[0] += KEPT_SECONDS / 2
    keeper.left("one")  # said twice, it is the first time that counts
    clock[0] += KEPT_SECONDS / 2 - 1
    assert keeper.of("one") is progress
    keeper.hold("one", progress)  # the connection is back
    clock[0] += KEPT_SECONDS
    assert keeper.of("one") is progress
    keeper.left("one")
    clock[0] += KEPT_SECONDS
    keeper.sweep()
    assert keeper.of("one") is None


def test_nobody_gets_anything_without_the_name() -> None:
    keeper = ProgressKeeper()
    keeper.hold("one", said(2.0))
    keeper.hold("two", Progress({}, {}))
    keeper.left("no such visitor")
    assert [keeper.of(name) for name in ("", "on", "one ", "two", "no such visitor")] == [None] * 5
    keeper.hold("one", Progress({}, {}))  # taken back: asked again, and nothing answered
    assert keeper.of("one") is None


def test_only_so_much_is_kept() -> None:
    clock = [0.0]
    keeper = ProgressKeeper(now=lambda: clock[0])
    names = [f"left {number}" for number in range(MOST_LEFT + 3)]
    for name in names:
        clock[0] += 1
        keeper.hold(name, said(1.0))
        keeper.left(name)
    assert [keeper.of(name) is None for name in names] == [True] * 3 + [False] * MOST_LEFT
    here = [f"here {number}" for number in range(MOST_KEPT + 2)]
    for name in here:
        keeper.hold(name, said(1.0))
        keeper.hold(here[0], said(2.0))  # who does something stays
    assert keeper.of(here[0]) is not None and [keeper.of(name) for name in names] == [None] * len(names)
    assert sum(keeper.of(name) is not None for name in here) == MOST_KEPT


def tab_says(session: AppTest, name: object) -> AppTest:
    """What the tab says it remembers."""
    known = ("questions_pledges", "questions_answered", "questions_has_asked", "link_given")
    state: dict[str, Any] = {key: session.session_state[key] for key in known if key in session.session_state}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.session_state", state)
        take_back(name)
    for key, value in state.items():
        session.session_state[key] = value
    session.run()
    assert not session.exception
    return session


def answered_in(session: AppTest) -> dict[str, Answered]:
    return dict(session.session_state["questions_answered"]) if "questions_answered" in session.session_state else {}


def name_of(session: AppTest) -> str:
    return str(session.session_state["questions_name"])


def predict(session: AppTest, key: str, value: float) -> AppTest:
    session.number_input(key=f"questions_said_{key}").set_value(value)
    session.button(key=f"questions_commit_{key}").click().run()
    assert not session.exception
    return session


def test_a_refresh_finds_prediction_settings_outcome_and_verdict() -> None:
    before = predict(arrive(PAGE, "en", q="query_heads", model="qwen3-0.6b"), "query_heads", 112.0)
    before.radio(key="question").set_value("dense").run()
    before.selectbox(key="questions_dense_other").set_value("llama-3.1-8b").run()
    predict(before, "dense", 3.0)
    answered = before.session_state["questions_answered"]
    after = tab_says(arrive(PAGE, "zh", q="dense", other="llama-3.1-8b"), name_of(before))
    assert after.session_state["questions_answered"] == answered
    assert answered["query_heads"].verdict is Verdict.CLOSE
    assert after.selectbox(key="questions_dense_other").value == "llama-3.1-8b"
    shown = text(after)
    assert sentence("questions.progress", "zh", done="2", total=str(len(QUESTIONS))) in shown
    assert sentence(f"questions.verdict_{answered['dense'].verdict}", "zh") in shown
    assert len(after.get("download_button")) == 1
    after.radio(key="question").set_value("query_heads").run()
    assert after.selectbox(key="questions_query_heads_model").value == "qwen3-0.6b"
    assert 'class="tbt-notice' not in "".join(block.proto.body for block in after.get("html"))  # settings as pledged
    after.button(key="questions_again_query_heads").click().run()
    predict(after, "query_heads", 1.0)  # the copy goes its own way
    assert after.session_state["questions_answered"]["query_heads"].verdict is Verdict.FAR
    assert before.session_state["questions_answered"]["query_heads"].verdict is Verdict.CLOSE
    kept = [progress_keeper().of(name_of(session)) for session in (before, after)]
    assert [one.answered["query_heads"].verdict for one in kept if one] == [Verdict.CLOSE, Verdict.FAR]


def test_whoever_says_another_name_gets_nothing() -> None:
    before = predict(arrive(PAGE, "en", q="query_heads"), "query_heads", 112.0)
    other = arrive(PAGE, "en", q="query_heads")
    for name in ("", "questions", name_of(before)[:-1], name_of(before) + "x", None, 7, [name_of(before)], {"a": 1}):
        tab_says(other, name)
        assert answered_in(other) == {} and name_of(other) != name_of(before)
        del other.session_state["questions_has_asked"]  # each name as the first that this tab says
    tab_says(tab_says(other, "questions"), name_of(before))
    assert answered_in(other) == {}  # it is asked once


def test_what_this_session_has_said_stands() -> None:
    before = predict(arrive(PAGE, "en", q="query_heads"), "query_heads", 112.0)
    after = predict(arrive(PAGE, "en", q="query_heads"), "query_heads", 1.0)
    tab_says(after, name_of(before))
    assert after.session_state["questions_answered"]["query_heads"].pledge.said == 1024.0


def address(session: AppTest) -> dict[str, str]:
    return {name: word if isinstance(word, str) else word[0] for name, word in session.query_params.items()}


def test_a_link_opens_a_question_with_its_dials() -> None:
    words = {"q": "constant", "n": "16384", "card": "l4"}
    session = arrive(PAGE, "en", **words, batch="32", gamma="8")
    assert address(session) == {"lang": "en", **words}
    assert session.select_slider(key=dial_key("constant", "n")).value == 16_384
    assert session.selectbox(key=dial_key("constant", "card")).value == "l4"
    assert "16,384" in text(session)
    state = session.session_state
    assert state[dial_key("batch", "n")] == QUESTIONS["batch"].given.n  # another question's n
    session.radio(key="question").set_value("batch").run()
    assert address(session) == {"lang": "en", "q": "batch"}
    session.select_slider(key=dial_key("batch", "batch")).set_value(256).run()
    assert address(session) == {"lang": "en", "q": "batch", "batch": "256"}
    session.switch_page("8_planner.py").run()
    session.switch_page(PAGE).run()
    assert address(session) == {"lang": "en", "q": "batch", "batch": "256"}


def test_a_link_with_bad_dials_opens_the_question_as_it_is() -> None:
    session = arrive(PAGE, "en", q="constant", n="7", card="<b>", model="mixtral-8x7b-v0.1", alpha_percent="50")
    assert address(session) == {"lang": "en", "q": "constant"}
    given = QUESTIONS["constant"].given
    for name in ("n", "card", "model"):
        assert session.session_state[dial_key("constant", name)] == getattr(given, name)
