"""Page 1 in both languages: steps, states of the buttons, hostile and impossible prompts, sessions apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from core.words import LANGUAGES, sentence
from pages.shared import stepping
from pages.shared.resources import shelf
from tests.pages.screen import chips, enabled, html, ledger, press, text

OpenPage = Callable[..., AppTest]
HOSTILE = (
    "$5 and $6 a_b_c ~~x~~ ** <b>bold</b> <script>alert(1)</script> &amp; # t ` {brace} "
    "\\(x\\) :red[x]\n你好 😀 \u202eabc"
)


def small_model() -> str:
    """The quickest of our own models that is there."""
    return "tiny" if shelf().problem("tiny") is None else "smollm2"


def with_prompt(session: AppTest, prompt: str, *, chat: bool = False, model: str | None = None) -> AppTest:
    session.selectbox(key="model").set_value(model or small_model()).run()
    if not session.toggle(key="chat_template").disabled:
        session.toggle(key="chat_template").set_value(chat)
    session.text_area(key="prompt").set_value(prompt)
    return session.run()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_from_prefill_to_reset(open_page: OpenPage, language: str) -> None:
    session = with_prompt(open_page(language), "床前明月光，")
    assert enabled(session) == {"prefill"}
    assert sentence("pages.before_prefill", language) in text(session)

    press(session, "prefill")
    assert enabled(session) == {"prefill", "decode", "step_back", "reset"}
    n_prompt = len(chips(session, "prompt"))
    first = chips(session, "new")
    assert len(first) == 1 and len(ledger(session)) == 1

    for number in range(1, 4):
        press(session, "decode")
        rows = ledger(session)
        assert len(rows) == number + 1  # one click, one row: the screen does not lag
        assert rows[-1][2:5] == ["1", str(n_prompt + number - 1), str(n_prompt + number)]
        assert rows[-1][10] == "0 B"
    produced = chips(session, "produced") + chips(session, "new")
    assert len(produced) == 4 and produced[0] == first[0]

    press(session, "step_back")
    assert len(ledger(session)) == 3
    assert chips(session, "produced") + chips(session, "new") == produced[:3]
    press(session, "decode")
    assert chips(session, "produced") + chips(session, "new") == produced

    press(session, "reset")
    assert enabled(session) == {"prefill"} and not ledger(session) and not chips(session, "prompt")


def test_undoing_the_prefill_leaves_no_run(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), "a"), "prefill")
    press(session, "step_back")
    assert enabled(session) == {"prefill"} and not ledger(session)


def test_without_a_cache_the_prefix_is_computed_again(open_page: OpenPage) -> None:
    session = with_prompt(open_page("en"), "床前明月光，")
    session.toggle(key="use_cache").set_value(False).run()
    press(session, "prefill")
    press(session, "decode")
    rows = ledger(session)
    n_prompt = len(chips(session, "prompt"))
    assert [row[0] for row in rows] == ["Recompute 1", "Recompute 2"]
    assert [row[2:4] for row in rows] == [[str(n_prompt), "0"], [str(n_prompt + 1), "0"]]
    assert {row[9] for row in rows} == {"0"}
    assert "times fewer" in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_prompts_are_shown_as_they_are(open_page: OpenPage, language: str) -> None:
    session = press(with_prompt(open_page(language), HOSTILE), "prefill")
    shown = "".join(chips(session, "prompt"))
    for piece in ("$5", "a_b_c", "<b>", "<script>", "&amp;", "`"):
        assert piece in shown
    assert "<script>alert" not in html(session) and "<b>bold" not in html(session)
    press(session, "decode")
    assert len(ledger(session)) == 2


@pytest.mark.parametrize("prompt", ["a\x00b", "\n", "\u202eabc", "<|im_end|></s><s>", "🏳️‍🌈" * 5, " " * 50])
def test_odd_prompts_do_no_harm(open_page: OpenPage, prompt: str) -> None:
    session = press(with_prompt(open_page("en"), prompt), "prefill")
    assert len(ledger(session)) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_longer_than_the_context_is_refused_in_a_sentence(open_page: OpenPage, language: str) -> None:
    session = press(with_prompt(open_page(language), "字" * 100_000), "prefill")
    limit = shelf().ask(small_model()).result().config.context_limit
    refusal = sentence("engine.prompt_too_long", language, n_tokens="#", limit=limit)
    assert refusal.partition("#")[2] in text(session)
    assert not ledger(session) and "decode" not in enabled(session)
    press(session, "reset")
    assert refusal.partition("#")[2] not in text(session)


def test_an_empty_prompt_begins_with_the_start_token_or_is_refused(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), ""), "prefill")
    model = shelf().ask(small_model()).result()
    if model.tokenizer.start_token_id is None:
        assert sentence("engine.prompt_empty", "en") in text(session)
    else:
        assert chips(session, "prompt") == [model.tokenizer.token_label(model.tokenizer.start_token_id)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_that_reached_its_length_says_so_and_cannot_go_on(open_page: OpenPage, language: str) -> None:
    session = with_prompt(open_page(language), "床前明月光，")
    session.number_input(key="max_new").set_value(2).run()
    press(press(session, "prefill"), "decode")
    assert sentence("pages.stopped_length", language) in text(session)
    assert enabled(session) == {"prefill", "step_back", "reset"}
    press(session, "step_back")
    assert "decode" in enabled(session)


def test_the_language_can_change_in_mid_run(open_page: OpenPage) -> None:
    session = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    before = [row[2:11] for row in ledger(session)]
    session.segmented_control(key="language_switch").set_value("zh").run()
    assert sentence("pages.heading_prefill_and_decode", "zh") in text(session)
    assert [row[2:11] for row in ledger(session)] == before
    press(session, "decode")
    assert len(ledger(session)) == 3


def test_settings_and_run_survive_a_visit_to_another_page(open_page: OpenPage) -> None:
    session = with_prompt(open_page("en"), "床前明月光，")
    session.number_input(key="seed").set_value(77).run()
    press(session, "prefill")
    session.switch_page("0_home.py").run()
    session.switch_page("1_prefill_and_decode.py").run()
    assert session.number_input(key="seed").value == 77
    assert session.text_area(key="prompt").value == "床前明月光，"
    assert len(ledger(session)) == 1
    press(session, "decode")
    assert len(ledger(session)) == 2


def test_two_visitors_never_see_each_others_run(open_page: OpenPage) -> None:
    one, other = with_prompt(open_page("en"), "床前明月光，"), with_prompt(open_page("zh"), "白日依山尽，")
    press(one, "prefill")
    assert not ledger(other.run())
    press(other, "prefill")
    press(other, "decode")
    assert len(ledger(one.run())) == 1
    alone = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    press(one, "decode")
    assert chips(one, "new") == chips(alone, "new")


def test_a_run_is_rebuilt_when_its_memory_was_given_back(open_page: OpenPage) -> None:
    session = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    key = session.session_state["visit"].key
    undisturbed = press(press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode"), "decode")
    slot = slots[key]
    assert slot.run is not None
    slot.release()  # what Streamlit does when the connection is gone
    press(session, "decode")
    assert chips(session, "new") == chips(undisturbed, "new")
    assert [row[2:11] for row in ledger(session)] == [row[2:11] for row in ledger(undisturbed)]
    press(press(session, "step_back"), "step_back")
    assert len(ledger(session)) == 1


def test_a_changed_setting_is_announced_and_waits_for_the_next_prefill(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), "床前明月光，"), "prefill")
    assert sentence("pages.settings_changed", "en") not in text(session)
    session.toggle(key="use_cache").set_value(False).run()
    assert sentence("pages.settings_changed", "en") in text(session)
    press(session, "decode")
    assert ledger(session)[-1][0] == "Decode 1"


slots: dict[str, stepping.Slot] = {}


@pytest.fixture(autouse=True)
def slots_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test holds the slots that Streamlit would release."""
    monkeypatch.setattr(stepping, "slot_of", lambda key: slots.setdefault(key, stepping.Slot()))
