"""Page 6's experiments on the tiny model: what is shown is what was measured, in both languages; all can be stopped."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.words import LANGUAGES, sentence
from pages.shared.numbers import count, milliseconds, percent, scaled_bytes
from pages.shared.techniques.panels import LIVE
from pages.shared.techniques.prefix import LATER_MESSAGES
from pages.shared.techniques.reckoned import KNOWN
from pages.shared.techniques.surgery import hurts_most
from pages.shared.techniques.tokens import token_text
from tests.pages.screen import arrive, html

PAGE = "6_which_term_does_it_change.py"
PROMPT = "What is the KV cache?"


def opened(language: str, name: str) -> AppTest:
    return arrive(PAGE, language, technique=name, live="tiny", prompt=PROMPT)


def run(session: AppTest, name: str) -> Any:
    """Presses the button and waits; returns what was measured."""
    session.button(key=f"terms_{name}_start").click().run()
    job = session.session_state[f"terms_{name}_job"]
    assert job.is_over(300) and job.refusal is None
    session.run()
    assert not session.exception
    return job.result()


def said(session: AppTest) -> str:
    """What a reader sees, charts and their tables included."""
    given = [json.loads(part.proto.json) for part in session.get("bidi_component")]
    bodies = [html(session), *(str(data["html"]) for data in given if "html" in data)]
    return re.sub(
        r"\s+", " ", unescape(re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", "\n".join(bodies), flags=re.DOTALL))
    )


@pytest.mark.parametrize("name", list(LIVE))
def test_each_experiment_runs_and_speaks_both_languages(name: str) -> None:
    session = opened("en", name)
    assert (
        sentence("terms.not_run", "en") in said(session) and "tbt-takeaway" not in html(session).split("</style>")[-1]
    )
    run(session, name)
    for language in LANGUAGES:
        session.session_state["language"] = language
        session.run()
        assert not session.exception
        assert len(re.findall('class="tbt-takeaway"', html(session))) == 1
        assert sentence(f"terms.about_{name}", language) in said(session)
        assert "{" not in said(session)


@pytest.mark.parametrize("name", list(LIVE))
def test_a_prediction_is_answered(name: str) -> None:
    session = opened("en", name)
    if name == "surgery":
        run(session, name)  # only the experiment can say
    (guess,) = [radio for radio in session.radio if str(radio.key).startswith("terms_guess")]
    answers = []
    for option in guess.options:
        session.radio(key=guess.key).set_value(option).run()
        assert not session.exception
        answers.append("Right, " in said(session))
    assert sum(answers) == 1


def test_another_prompt_forgets_the_result() -> None:
    session = opened("en", "two")
    run(session, "two")
    session.text_area(key="terms_prompt").set_value("Once upon a time").run()
    assert sentence("terms.not_run", "en") in said(session) and 'tbt-takeaway"' not in html(session)


def test_it_can_be_stopped() -> None:
    session = opened("en", "thought")
    session.button(key="terms_thought_start").click().run()
    job = session.session_state["terms_thought_job"]
    session.button(key="terms_thought_cancel").click().run()
    assert job.is_over(60)
    session.run()
    assert sentence("terms.stopped", "en") in said(session)


def test_what_cannot_be_asked_is_refused_in_a_sentence() -> None:
    session = opened("en", "surgery")
    session.text_area(key="terms_prompt").set_value("a" * 1500).run()
    session.button(key="terms_surgery_start").click().run()
    assert not session.exception and 'role="alert"' in html(session)


def test_sampling_shows_equal_costs() -> None:
    session = opened("en", "sampling")
    result = run(session, "sampling")
    assert result.costs_equal and result.flops.before == result.flops.after > 0
    assert sentence("terms.takeaway_sampling", "en", **_values(result, session)) in said(session)


def _values(result: Any, session: AppTest) -> dict[str, str]:
    from pages.shared.resources import shelf
    from pages.shared.techniques.compared import as_flops

    best, choosing = result.first.candidates[0], result.choosing_seconds
    return {
        "token": token_text(shelf().ask("tiny").result().tokenizer, best.token_id),
        "before": percent(best.probability),
        "after": percent(best.probability_kept),
        "steps": "16",
        "flops": as_flops(result.flops.after),
        "read": scaled_bytes(int(result.bytes_read.after), "binary"),
        "greedy": milliseconds(choosing.before),
        "drawn": milliseconds(choosing.after),
        "share": percent(choosing.after / (result.pass_seconds.after + choosing.after)),
    }


def test_quantised_bytes_are_the_formula() -> None:
    session = opened("en", "weights")
    result = run(session, "weights")
    assert result.weight_bytes == result.weight_bytes_formula
    shown = said(session)
    for n_bytes in result.weight_bytes:
        assert scaled_bytes(n_bytes, "binary") in shown
    assert (
        percent(result.compared.quality.agreement) in shown
        and sentence("terms.knows_text", "en", spoken="English") in shown
    )


def test_a_cache_with_a_window_is_run_until_something_is_quantised() -> None:
    """What is asked last is what the guess asks about, and what both measures come from is said."""
    session = opened("en", "cache")
    session.toggle(key="terms_by_channel").set_value(True).run()
    session.toggle(key="terms_window").set_value(True).run()
    session.selectbox(key="terms_bits").set_value(4).run()
    assert session.radio(key="terms_guess_cache").label == sentence("terms.guess_cache", "en", bits=4)
    result = run(session, "cache")
    n, n_held = result.compared.n_tokens, len(result.compared.quality.positions)
    assert result.scheme.n_quantised(n - 23) == 32 and result.compared.kv_bytes.ratio < 1
    kept = {
        "n": count(n),
        "kept": count(n - 32),
        "held": count(n_held),
        "held_kept": count(n_held - n_held // 32 * 32 + 32),
    }
    assert sentence("terms.note_cache_kept", "en", **kept) in said(session)


def test_heads_fall_in_proportion() -> None:
    session = opened("en", "heads")
    result = run(session, "heads")
    heads = result.n_kv_heads
    assert result.compared.kv_bytes.ratio == heads.after / heads.before == result.kv_bytes_formula.ratio


def test_a_chat_that_ran_stays_what_was_said() -> None:
    """Its answers are to messages in the language it ran in, whatever the page speaks since."""
    session = opened("en", "prefix")
    run(session, "prefix")
    session.session_state["language"] = "zh"
    session.run()
    shown = said(session)
    for name in LATER_MESSAGES:
        assert sentence(f"terms.message_{name}", "en") in shown
        assert sentence(f"terms.message_{name}", "zh") not in shown


def test_the_accepted_tokens_are_the_ones_marked() -> None:
    session = opened("en", "draft")
    result = run(session, "draft")
    accepted = sum(min(done.n_accepted, len(done.token_ids)) for done in result.passes)
    assert html(session).count('<span class="tbt-terms-accepted"><small>✓') == accepted
    refused = sum(done.is_corrected for done in result.passes)
    assert html(session).count('<span class="tbt-terms-refused"><small>✗') == refused
    assert f"{count(len(result.passes))} passes for {count(len(result.token_ids))} tokens" in said(session)


def test_a_repeating_prompt_is_drafted_from() -> None:
    session = opened("en", "draft")
    session.button(key="terms_repeating").click().run()
    result = run(session, "draft")
    assert result.is_same_text and result.alpha > 0.5 and result.tokens_per_pass > 2


def test_what_surgery_finds_decides_about_the_guess() -> None:
    session = opened("en", "surgery")
    session.radio(key="terms_guess_surgery").set_value(session.radio(key="terms_guess_surgery").options[0]).run()
    assert sentence("terms.guess_kept", "en") in said(session)
    result = run(session, "surgery")
    right = session.radio(key="terms_guess_surgery").options[hurts_most(result)]
    verdict = "guess_right" if hurts_most(result) == 0 else "guess_wrong"
    assert sentence(f"tools.{verdict}", "en", answer=right) in said(session)


def test_a_link_opens_every_experiment_with_its_options() -> None:
    """In Chinese: AppTest asks what an option is called outside of the session, where nobody has chosen a language."""
    words = {
        **{"technique": "draft", "live": "tiny", "temp": "0.7", "topk": "40", "topp": "0.5", "scheme": "int4_64"},
        **{"bits": "4", "by_channel": "1", "window": "1", "drafter": "layers", "gamma": "6", "draft_layers": "2"},
        **{"sampled": "1", "card": "l4", "thought": "64000", "back": "15"},
    }
    session = arrive(PAGE, "zh", **words)
    assert address(session) == {"lang": "zh", **words}
    assert session.slider(key="terms_gamma").value == 6 and session.toggle(key="terms_draft_sampled").value
    assert session.selectbox(key="terms_drafter").value == "layers" and session.slider(key="terms_layers_4").value == 2
    shown = {
        "sampling": lambda: (session.slider[0].value, session.number_input[0].value, session.slider[1].value),
        "weights": lambda: (session.selectbox(key="terms_scheme").value,),
        "cache": lambda: (session.selectbox(key="terms_bits").value, *(toggle.value for toggle in session.toggle)),
        "thought": lambda: (session.selectbox(key="terms_card").value, session.select_slider[0].value),
        "surgery": lambda: (session.slider[0].value,),
    }
    values = {
        "sampling": (0.7, 40, 0.5),
        "weights": ("int4_64",),
        "cache": (4, True, True),
        "thought": ("l4", 64_000),
        "surgery": (15,),
    }
    for name, read in shown.items():
        session.segmented_control(key="technique").set_value(name).run()
        assert not session.exception and read() == values[name]
    session.slider[0].set_value(3).run()
    assert address(session) == {"lang": "zh", **words, "technique": "surgery", "back": "3"}


def test_bad_options_are_as_if_nothing_was_said() -> None:
    """Four layers and two KV heads: what only another model has is no option of this one."""
    bad = {"gamma": "9", "draft_layers": "4", "sampled": "yes", "scheme": "int4_48", "temp": "0", "kv_heads": "3"}
    good = {"technique": "draft", "live": "tiny", "drafter": "layers"}
    session = arrive(PAGE, "zh", **good, **bad)
    session.run()
    assert address(session) == {"lang": "zh", **good, "kv_heads": "3"}
    assert session.slider(key="terms_gamma").value == 4 and session.slider(key="terms_layers_4").value == 3
    session.segmented_control(key="technique").set_value("heads").run()
    assert session.selectbox(key="terms_heads_tiny").value == 1
    assert "kv_heads" not in address(session.run())


def address(session: AppTest) -> dict[str, str]:
    return {name: word if isinstance(word, str) else word[0] for name, word in session.query_params.items()}


@pytest.mark.parametrize("name", list(KNOWN))
def test_what_many_share_is_shown_as_it_was_measured(name: str) -> None:
    session = opened("en", name)
    result = run(session, name)
    expected: list[str] = []
    if name == "batching":
        assert all(map(result.has_same_tokens, result.points))
        expected = [f"{result.by_bytes(point):.2f}× {result.speedup(point):.2f}×" for point in result.points]
    elif name == "chunks":
        assert result.has_same_token
        expected = [scaled_bytes(point.bytes_read, "binary") for point in result.points]
    elif name == "experts":
        expected = [f"{result.expected_distinct(batch):.2f}" for batch in result.batches]
    else:
        assert result.has_same_tokens and all(turn.n_reused == turn.n_cached for turn in result.later)
        expected = [f"{found.n_reused} of {found.n_cached}" for found in result.cases]
    shown = said(session)
    assert expected and [text for text in expected if text not in shown] == []
    assert sentence("terms.reckoned", "en", model="Llama-3.1-8B") in shown
