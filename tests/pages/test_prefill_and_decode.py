"""Page 1 in both languages: steps, states of the buttons, hostile and impossible prompts, sessions apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.words import LANGUAGES, sentence
from pages.shared import stage, stepping
from pages.shared.keep import Keeper
from pages.shared.resources import shelf
from pages.shared.started import Slot
from tests.pages.screen import (
    enabled,
    frame,
    header,
    html,
    ledger,
    notice,
    press,
    produced,
    prompt_labels,
    send,
    text,
)

OpenPage = Callable[..., AppTest]
HOSTILE = (
    "$5 and $6 a_b_c ~~x~~ ** <b>bold</b> <script>alert(1)</script> &amp; # t ` {brace} "
    "\\(x\\) :red[x]\n你好 😀 \u202eabc"
)
SOME = 1_234_567  # so many tokens no prompt has
# What a step is, without the readings of a clock.
FACTS = ("phase", "n_tokens", "new", "reused", "flops_exact", "flops_chapter", "kv_bytes", "kv_formula", "token")


def facts(session: AppTest) -> list[list[Any]]:
    return [[step[key] for key in FACTS] for step in ledger(session)]


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
    assert enabled(session) == {"prefill"} and header(session)["language"] == language

    press(session, "prefill")
    assert enabled(session) == {"prefill", "decode", "step_back", "reset"}
    n_prompt, first = len(prompt_labels(session)), produced(session)
    assert len(first) == 1 and ledger(session)[0]["new"] == n_prompt

    for number in range(1, 4):
        press(session, "decode")
        assert header(session)["total"] == number + 1  # one click, one row: the screen does not lag
        newest = ledger(session)[-1]
        assert [newest["new"], newest["reused"], newest["n_tokens"]] == [1, n_prompt + number - 1, n_prompt + number]
        assert newest["kv_bytes"] == newest["kv_formula"] > 0
    tokens = produced(session)
    assert len(tokens) == 4 and tokens[0] == first[0]

    press(session, "step_back")
    assert produced(session) == tokens[:3]
    press(session, "decode")
    assert produced(session) == tokens

    press(session, "reset")
    assert enabled(session) == {"prefill"} and not ledger(session) and not prompt_labels(session)


def test_undoing_the_prefill_leaves_no_run(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), "a"), "prefill")
    press(session, "step_back")
    assert enabled(session) == {"prefill"} and not ledger(session)


def test_without_a_cache_the_prefix_is_computed_again(open_page: OpenPage) -> None:
    session = with_prompt(open_page("en"), "床前明月光，")
    session.toggle(key="use_cache").set_value(False).run()
    press(press(session, "prefill"), "decode")
    rows, n_prompt = ledger(session), len(prompt_labels(session))
    assert [row["phase"] for row in rows] == ["recompute", "recompute"]
    assert [(row["new"], row["reused"]) for row in rows] == [(n_prompt, 0), (n_prompt + 1, 0)]
    assert {row["kv_bytes"] for row in rows} == {0} and not header(session)["facts"]["use_cache"]
    # One column a step all the same: those before it are drawn already and would be the same.
    shape = header(session)["facts"]
    assert len(frame(session)[1]) == (n_prompt + 1) * shape["n_layers"] * 2 * shape["n_kv_heads"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_prompts_are_shown_as_they_are(open_page: OpenPage, language: str) -> None:
    session = press(with_prompt(open_page(language), HOSTILE), "prefill")
    shown = "".join(prompt_labels(session))
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
    refusal = sentence("engine.prompt_too_long", language, n_tokens=SOME, limit=limit)
    assert refusal.partition(f"{SOME:,}")[2] in notice(session)
    assert not ledger(session) and "decode" not in enabled(session)
    press(session, "reset")
    assert not notice(session)


def test_an_empty_prompt_begins_with_the_start_token_or_is_refused(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), ""), "prefill")
    model = shelf().ask(small_model()).result()
    if model.tokenizer.start_token_id is None:
        assert notice(session) == sentence("engine.prompt_empty", "en")
    else:
        assert prompt_labels(session) == [model.tokenizer.token_label(model.tokenizer.start_token_id)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_that_reached_its_length_says_so_and_cannot_go_on(open_page: OpenPage, language: str) -> None:
    session = with_prompt(open_page(language), "床前明月光，")
    session.number_input(key="max_new").set_value(2).run()
    press(press(session, "prefill"), "decode")
    assert notice(session) == sentence("stage.stopped_length", language)
    assert enabled(session) == {"prefill", "step_back", "reset"}
    press(session, "step_back")
    assert "decode" in enabled(session)


def test_the_language_can_change_in_mid_run(open_page: OpenPage) -> None:
    session = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    before = facts(session)
    session.segmented_control(key="language_switch").set_value("zh").run()
    assert sentence("pages.heading_prefill_and_decode", "zh") in text(session)
    assert facts(session) == before and header(session)["language"] == "zh"
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
    assert not ledger(other)
    press(press(other, "prefill"), "decode")
    assert len(ledger(one)) == 1
    alone = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    press(one, "decode")
    assert produced(one) == produced(alone)
    # An event that names another visit does nothing here, whatever it says.
    send(one, "reset", visit=header(other)["visit"])
    assert len(ledger(one)) == 2


def test_a_run_is_rebuilt_when_its_memory_was_given_back(open_page: OpenPage) -> None:
    session = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    undisturbed = press(press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode"), "decode")
    slot = slots[session.session_state["visit"].key]
    assert slot.run is not None
    slot.release()  # what Streamlit does when the connection is gone
    press(session, "decode")
    assert facts(session) == facts(undisturbed)
    press(press(session, "step_back"), "step_back")
    assert len(ledger(session)) == 1


def test_a_changed_setting_is_announced_and_waits_for_the_next_prefill(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), "床前明月光，"), "prefill")
    assert not header(session)["line"]["changed"]
    session.toggle(key="use_cache").set_value(False).run()
    assert header(session)["line"]["changed"]
    press(session, "decode")
    assert ledger(session)[-1]["phase"] == "decode"


def test_a_click_on_an_older_screen_does_nothing(open_page: OpenPage) -> None:
    session = press(with_prompt(open_page("en"), "床前明月光，"), "prefill")
    old = header(session)["version"]
    press(session, "decode")
    for _ in range(3):  # a double click, an answer that was lost and asked for again
        send(session, "decode", seen=old)
    assert len(ledger(session)) == 2


def test_a_frame_holds_only_what_the_browser_does_not_have(open_page: OpenPage) -> None:
    session = press(press(with_prompt(open_page("en"), "床前明月光，"), "prefill"), "decode")
    send(session, "decode", have=2)
    shown, cells = frame(session)
    assert (shown["start"], shown["total"], len(shown["steps"])) == (2, 3, 1) and "prompt" not in shown
    n_cells = shown["facts"]["n_layers"] * 2 * shown["facts"]["n_kv_heads"]
    assert len(cells) == n_cells + 2 * shown["steps"][0]["n_tokens"]  # one column, one row of attention
    assert shown["attention"]["step"] == 2
    session.number_input(key="seed").set_value(5).run()  # not asked by the stage: from what it said last
    assert header(session)["start"] == 2
    send(session, "look", have=-7)
    assert header(session)["start"] == 0
    send(session, "look", have=10**9)
    assert header(session)["start"] == 3


@pytest.mark.parametrize(
    "nonsense",
    [None, "decode", 7, {}, {"action": "eval"}, {"action": ["decode"]}, {"action": "decode", "seen": "1", "have": 1e9}],
)
def test_an_event_that_makes_no_sense_does_nothing(open_page: OpenPage, nonsense: object) -> None:
    session = press(with_prompt(open_page("en"), "床前明月光，"), "prefill")
    session.session_state[stage.HEARD] = nonsense
    session.run()
    assert not session.exception and len(ledger(session)) == 1


def test_a_second_turn_prefills_the_whole_conversation(open_page: OpenPage, chat_model: str) -> None:
    model = shelf().ask(chat_model).result()
    session = with_prompt(open_page("en"), "Say hi.", chat=True, model="smollm2")
    session.number_input(key="max_new").set_value(3).run()
    press(press(session, "prefill"), "decode")
    first_ids = [token_id for token_id, *_ in header(send(session, "look"))["prompt"]]
    answer = "".join(step["text"] for step in ledger(session))
    assert "next_turn" in enabled(session)
    press(session, "next_turn")
    assert "next_turn" not in enabled(session)  # an exchange becomes a turn once
    visit = session.session_state["visit"]
    assert [message.content for message in visit.turns] == ["Say hi.", answer]
    assert session.text_area(key="prompt").value == ""
    session.text_area(key="prompt").set_value("And again?").run()
    press(session, "prefill")
    shown = header(send(session, "look"))
    ids = [token_id for token_id, *_ in shown["prompt"]]
    assert model.tokenizer.decode(ids).count("Say hi.") == 1 and len(ids) > len(first_ids)
    again = shown["facts"]["computed_again"]
    assert len(first_ids) <= again < len(ids) and ids[: len(first_ids)] == first_ids
    assert shown["steps"][0]["new"] == len(ids)  # all of it is prefilled again
    press(session, "next_turn")
    assert len(visit.turns) == 4


def test_a_refreshed_tab_finds_its_run_and_settings(open_page: OpenPage) -> None:
    before = with_prompt(open_page("en"), "床前明月光，" * 90)  # longer than an address takes
    before.number_input(key="seed").set_value(9).run()
    press(press(before, "prefill"), "decode")
    name = header(before)["visit"]
    after = open_page("en")
    send(after, "resume", name=name)
    assert header(after)["visit"] != name and facts(after) == facts(before)  # the first tab is still there
    assert after.text_area(key="prompt").value == "床前明月光，" * 90 and after.number_input(key="seed").value == 9
    press(after, "decode")
    assert (len(ledger(after)), len(ledger(before))) == (3, 2)  # each its own from here on
    send(after, "resume", name=name)  # a visit that has begun is not replaced
    assert len(ledger(after)) == 3
    stranger = open_page("en")
    send(stranger, "resume", name="no such visit")
    assert not ledger(stranger)


slots: dict[str, Slot] = {}


@pytest.fixture(autouse=True)
def memory_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test holds the slots that Streamlit would release, and a keeper of its own."""
    kept = Keeper()
    monkeypatch.setattr(stepping, "slot_of", lambda visit: slots.setdefault(visit.key, Slot()))
    monkeypatch.setattr("pages.shared.resources._keeper", lambda: kept)
