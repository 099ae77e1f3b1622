"""Settings in the address: each of them there and back, nonsense ignored, the visitor's values above the link's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate.custom import NUMBERS as NUMBERS_OF_A_CARD
from core.estimate.query import SHAPE
from core.questions.registry import QUESTIONS
from core.words import LANGUAGES
from pages.shared.link import LONGEST_IN_LINK
from pages.shared.prompts import default_prompt
from pages.shared.resources import shelf
from pages.shared.setting import Setting
from pages.shared.settings import SETTINGS
from tests.pages.conftest import PREFILL_AND_DECODE
from tests.pages.screen import arrive

OpenPage = Callable[..., AppTest]
follow = partial(arrive, PREFILL_AND_DECODE)

# For each setting of page 1 and the frame a word that is not the default, and what st.session_state then holds.
OTHER = {
    "lang": ("en", "en"),
    "units": ("decimal", "decimal"),
    "model": ("tiny", "tiny"),
    "chat": ("0", False),
    "system": ("Answer in $5 & <b>rhyme</b>?", "Answer in $5 & <b>rhyme</b>?"),
    "cache": ("0", False),
    "temp": ("0.7", 0.7),
    "topk": ("40", 40),
    "topp": ("0.95", 0.95),
    "seed": ("2147483647", 2147483647),
    "max": ("1024", 1024),
    "speed": ("8", 8),
    "tool": ("race", "race"),
    "prompt": ("你好 = a&b+c\n# %20", "你好 = a&b+c\n# %20"),
}
# The same of the estimate pages.
COSTS = {
    "model": ("qwen3-8b", "qwen3-8b"),
    "batch": ("12", 12),
    "context": ("1000", 1000),
    "n_layers": ("30", 30),
    "n_heads": ("16", 16),
    "n_kv_heads": ("4", 4),
    "head_dim": ("64", 64),
    "d_model": ("2048", 2048),
    "d_ff": ("1000", 1000),
    "vocab_size": ("50000", 50000),
    "weight_dtype": ("q8_0", "q8_0"),
    "kv_dtype": ("fp8", "fp8"),
    "accelerator": ("h100-sxm", "h100-sxm"),
    "card_memory": ("24.5", 24.5),
    "card_bandwidth": ("936", 936.0),
    "card_bf16": ("71", 71.0),
    "card_fp8": ("0", 0.0),
}
PLANNER_WORDS = {
    "models": ("qwen3-8b,gpt2", ["qwen3-8b", "gpt2"]),
    "accelerators": ("l4", ["l4"]),
    "batch": ("12", 12),
    "context": ("1000", 1000),
    "tp": ("1,8", [1, 8]),
    "weight_dtype": ("bf16,experts=mxfp4", "bf16,experts=mxfp4"),
    "kv_dtype": ("q8_0", "q8_0"),
    "memory_fraction": ("0.85", 0.85),
}
LAB_WORDS = {
    "compare": ("heads", "heads"),
    "model": ("random", "random"),
    "contexts": ("64,4096", "64,4096"),
    "batches": ("1,16", "1,16"),
    "repeats": ("5", 5),
    "fill": ("fast", "fast"),
    "n_layers": ("30", 30),
    "n_heads": ("16", 16),
    "n_kv_heads": ("4", 4),
    "head_dim": ("128", 128),
}
WORDS = {
    "": {name: OTHER[name] for name in ("lang", "units")},
    "prefill_and_decode": {name: other for name, other in OTHER.items() if name not in ("lang", "units")},
    "kv_cache": COSTS,
    "memory_and_compute": COSTS | {"causal": ("1", True)},
    "where_the_time_goes": COSTS | {"machine": ("1", True)},
    "which_term_does_it_change": {
        "technique": ("draft", "draft"),
        "model": ("qwen3-8b", "qwen3-8b"),
        "live": ("tiny", "tiny"),
        "prompt": ("a & b", "a & b"),
        "temp": ("0.7", 0.7),
        "topk": ("40", 40),
        "topp": ("0.5", 0.5),
        "scheme": ("int4_64", "int4_64"),
        "bits": ("4", 4),
        "by_channel": ("1", True),
        "window": ("1", True),
        "drafter": ("layers", "layers"),
        "gamma": ("8", 8),
        "draft_layers": ("2", 2),
        "sampled": ("1", True),
        "card": ("l4", "l4"),
        "thought": ("64000", 64_000),
        "kv_heads": ("1", 1),
        "back": ("15", 15),
    },
    "questions": {"q": ("constant", "constant")},
    "planner": PLANNER_WORDS,
    "lab": LAB_WORDS,
}
NUMBERS = ["0", "-1", "1e3", "", "9" * 400, "１", " 1"]
NONSENSE = {
    "lang": ["fr", "EN", "<script>", "zh-CN", ""],
    "units": ["metric", "1", ""],
    "model": ["gpt-5", "../../etc/passwd", "/tmp/x.gguf", ""],
    "chat": ["2", "yes", "-1", ""],
    "cache": ["on", "01", " 1"],
    "temp": ["-1", "nan", "inf", "1e3", "5.01", "0,5", "٣", "1_0", " 1", ".5", "9" * 400],
    "topk": ["-1", "1.5", "1000001", "0x10", "１", "9" * 400],
    "topp": ["1.0001", "-0.1", "NaN", ""],
    "seed": ["2147483648", "-1", "1e3", "seed", ""],
    "max": ["0", "1025", "-64", "many"],
    "speed": ["3", "0", "4.0", "1000"],
    "tool": ["None", "0", "", "microscope,race"],
    **dict.fromkeys(("batch", "context", *SHAPE), NUMBERS),
    "weight_dtype": ["bf17", "bf16,experts", ""],
    "kv_dtype": ["q9", "", "Q8_0"],
    "accelerator": ["abacus", "H100", ""],
    "causal": ["2", "yes", ""],
    "machine": ["2", "on", ""],
    **{name: ["-1", "1e3", "", "nan", "10000001", "１"] for name in NUMBERS_OF_A_CARD},
    "technique": ["", "none", "draft,cache"],
    "live": ["gpt-5", "../x", ""],
    "scheme": ["int4", "INT8", "", "int4_48"],
    "bits": ["2", "16", "8.0", ""],
    "by_channel": ["2", "on"],
    "window": ["32", ""],
    "drafter": ["none", "lookup,layers"],
    "gamma": ["0", "9", "-1", "4.0"],
    "draft_layers": ["0", "-1", "1001", "all"],
    "sampled": ["2", "greedy"],
    "thought": ["1", "8,000", "256000", ""],
    "kv_heads": ["0", "1001", "1.5"],
    "back": ["0", "16", "-8"],
    **{name: ["abacus", "H100", "", "gpt-5"] for name in ("card", "other_card", "other")},
    **{name: [*NUMBERS, "7"] for name in ("n", "n_new", "ranks", "alpha_percent")},
    "q": ["", "Q1", "slower,flash"],
    "models": ["gpt-5", "qwen3-8b,qwen3-8b", ","],
    "accelerators": ["abacus", "l4,", "l4,l4"],
    "tp": ["3", "1,1", "0"],
    "compare": ["tokens", "", "Heads"],
    "contexts": ["0", "-1", "", ",", "1e3", "１", "9" * 8, "1;2", ",".join(["7"] * 65)],
    "batches": ["0", "1,x", ""],
    "repeats": ["0", "51", "many"],
    "fill": ["slow", ""],
    "memory_fraction": ["0", "1.1", "nan", ""],
}
DIALS = [setting for setting in SETTINGS if setting.only_with is not None]
"""Of page 7's questions: the same name means another dial where another question is open."""
OTHERS = [setting for setting in SETTINGS if setting.only_with is None]
CASES = [(setting, word) for setting in OTHERS for word in NONSENSE.get(setting.name, [])]


def address(session: AppTest) -> dict[str, str]:
    return {name: str(word[0] if isinstance(word, list) else word) for name, word in session.query_params.items()}


def test_the_cases_are_complete() -> None:
    found = [(setting.page, setting.name) for setting in OTHERS]
    assert sorted(found) == sorted((page, name) for page, words in WORDS.items() for name in words)
    texts = {"system", "prompt"}  # any text is a prompt
    assert set(NONSENSE) == {setting.name for setting in SETTINGS} - texts
    keys = [setting.key for setting in SETTINGS if setting.page == "questions"]
    assert len(set(keys)) == len(keys) == 1 + sum(len(question.dials) for question in QUESTIONS.values())


def test_every_setting_goes_into_the_link_and_comes_out_of_it() -> None:
    words = {name: word for name, (word, _) in OTHER.items()}
    session = follow(words.pop("lang"), **words)
    assert address(session) == {"lang": "en", **words}
    for setting in SETTINGS:
        if setting.page in ("", "prefill_and_decode"):
            assert session.session_state[setting.key] == OTHER[setting.name][1], setting.name
    assert session.number_input(key="temperature").value == 0.7
    assert session.text_area(key="prompt").value == OTHER["prompt"][1]
    assert session.selectbox(key="model").value == "tiny" and not session.toggle(key="use_cache").value


@pytest.mark.parametrize("setting", OTHERS, ids=lambda setting: f"{setting.page}-{setting.name}")
def test_a_setting_reads_what_it_writes(setting: Setting) -> None:
    word, value = WORDS[setting.page][setting.name]
    assert setting.read(word) == value and setting.write(value) == word
    for written in {"temperature": (0.1 + 0.2, 1e-05, 5.0), "top_p": (0.0, 1.0, 1 / 3)}.get(setting.key, ()):
        assert setting.read(setting.write(written)) == written


@pytest.mark.parametrize(("setting", "word"), CASES)
def test_nonsense_is_not_read(setting: Setting, word: str) -> None:
    with pytest.raises(ValueError):
        setting.read(word)


def test_the_dials_of_questions_read_what_they_write_and_no_nonsense() -> None:
    for setting in DIALS:
        assert setting.only_with is not None
        question = QUESTIONS[setting.only_with[1]]
        (choices,) = [dial.choices for dial in question.dials if dial.name == setting.name]
        assert [setting.read(setting.write(choice)) for choice in choices] == list(choices)
        assert setting.default() in choices
        for word in NONSENSE[setting.name]:
            with pytest.raises(ValueError):
                setting.read(word)


def test_a_page_takes_its_own_words_alone() -> None:
    """`batch` stands on three pages and means two things: a link to one page changes nothing on another."""

    def arrive(page: str) -> AppTest:
        session = AppTest.from_function(read_the_link_of)
        session.query_params["batch"] = "7"
        session.query_params["arrived"] = page
        return session.run()

    assert {key: key in arrive("planner").session_state for key in ("plan_batch", "cost_batch")} == {
        "plan_batch": True,
        "cost_batch": False,
    }
    assert arrive("kv_cache").session_state["cost_batch"] == 7 and "plan_batch" not in arrive("kv_cache").session_state
    assert arrive("home").session_state["cost_batch"] == arrive("home").session_state["plan_batch"] == 7


def read_the_link_of() -> None:
    import streamlit as st

    from pages.shared.link import read_link

    read_link("")
    read_link(st.query_params["arrived"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_of_nonsense_is_a_link_of_nothing(language: str) -> None:
    words = {name: words[0] for name, words in NONSENSE.items() if name != "lang"}
    session = follow(language, **words, another="<img src=x>", visit="a", language="fr", Seed="7")
    assert address(session) == {"lang": language}
    assert session.text_area(key="prompt").value == default_prompt(shelf().choices[0], language)


def test_a_text_goes_into_the_link_up_to_its_length() -> None:
    session = follow("en", prompt="字" * LONGEST_IN_LINK)
    assert address(session)["prompt"] == "字" * LONGEST_IN_LINK
    session.text_area(key="prompt").set_value("字" * (LONGEST_IN_LINK + 1)).run()
    assert address(session) == {"lang": "en"} and len(session.session_state["prompt"]) == LONGEST_IN_LINK + 1
    assert len(follow("en", prompt="a" * (LONGEST_IN_LINK + 1)).text_area(key="prompt").value) < 100
    empty = follow("en", prompt="")
    assert empty.text_area(key="prompt").value == "" and address(empty)["prompt"] == ""


def test_the_visitors_value_counts_more_than_a_later_address() -> None:
    session = follow("en", seed="5")
    session.number_input(key="seed").set_value(6).run()
    session.query_params["seed"] = "9"
    session.query_params["lang"] = "zh"
    session.run()
    assert session.number_input(key="seed").value == 6 and session.session_state["language"] == "en"
    assert address(session) == {"lang": "en", "seed": "6"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_settings_survive_a_visit_to_another_page_and_stay_out_of_its_address(
    open_page: OpenPage, language: str
) -> None:
    session = open_page(language)
    session.number_input(key="seed").set_value(77)
    session.number_input(key="top_p").set_value(0.5)
    session.toggle(key="use_cache").set_value(False)
    session.text_area(key="prompt").set_value("a_b $c$").run()
    session.switch_page("0_home.py").run()
    assert address(session) == {"lang": language}
    session.switch_page(PREFILL_AND_DECODE).run()
    assert session.number_input(key="seed").value == 77 and session.number_input(key="top_p").value == 0.5
    assert not session.toggle(key="use_cache").value and session.text_area(key="prompt").value == "a_b $c$"
    assert address(session) == {"lang": language, "cache": "0", "topp": "0.5", "seed": "77", "prompt": "a_b $c$"}


def test_a_setting_back_at_its_default_leaves_the_address(open_page: OpenPage) -> None:
    session = open_page("en")
    session.number_input(key="max_new").set_value(8).run()
    assert address(session) == {"lang": "en", "max": "8"}
    session.number_input(key="max_new").set_value(64).run()
    assert address(session) == {"lang": "en"}


def a_session_that_gets_its_settings_back() -> None:
    import streamlit as st

    from pages.shared.link import apply_settings, fill_in_defaults, settings_now

    if "given" in st.session_state:
        apply_settings(st.session_state["given"])
    fill_in_defaults()
    st.session_state["now"] = settings_now()


def test_settings_can_be_put_away_and_given_back() -> None:
    given = {name: word for name, (word, _) in OTHER.items() if name not in ("lang", "units")}
    given["prompt"] = "字" * 100_000
    for wanted in (given, {**given, "seed": "x", "nothing": "1"}):
        session = AppTest.from_function(a_session_that_gets_its_settings_back)
        session.session_state["given"] = wanted
        session.run()
        seed = given["seed"] if wanted is given else "0"
        assert not session.exception and session.session_state["now"] == {**given, "seed": seed}


def test_without_a_link_all_settings_are_at_their_defaults() -> None:
    session = AppTest.from_function(a_session_that_gets_its_settings_back)
    session.session_state["language"] = "zh"
    now = session.run().session_state["now"]
    first = shelf().choices[0]
    assert now == {
        "model": first, "chat": "1", "system": "", "cache": "1", "temp": "0", "topk": "0", "topp": "1", "seed": "0",
        "max": "64", "speed": "4", "tool": "none", "prompt": default_prompt(first, "zh"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("link", "otherwise"),
    [({}, False), ({"seed": "7", "temp": "0.70"}, False), ({"seed": "8", "temp": "0.7"}, True), ({"seed": "x"}, False)],
)
def test_a_refresh_is_told_from_another_link_in_the_same_tab(link: dict[str, str], otherwise: bool) -> None:
    session = AppTest.from_function(a_session_that_compares)
    for name, word in link.items():
        session.query_params[name] = word
    session.run()
    assert session.session_state["otherwise"] is otherwise and not session.exception


def a_session_that_compares() -> None:
    import streamlit as st

    from pages.shared.link import link_says_otherwise, read_link

    read_link("")
    read_link("prefill_and_decode")
    st.session_state["otherwise"] = link_says_otherwise({"seed": "7", "temp": "0.7", "prompt": "a"})
