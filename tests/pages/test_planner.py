"""The planner: every figure is core's, in both units and both languages; its link, its guess, its takeaway."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named, accelerators
from core.estimate.derivations import derivations
from core.estimate.estimate import Request, estimate, notes_of
from core.words import LANGUAGES, sentence
from core.words import catalogue as words
from pages.shared import planner_guess
from pages.shared.numbers import scaled_bytes
from pages.shared.planner import MOST_ROWS
from pages.shared.planner_opened import FIGURES
from tests.pages.planner_screen import LINK, PLANNER, expected, follow, line_of, table
from tests.pages.screen import html, text

OpenPage = Callable[..., AppTest]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("units", ["binary", "decimal"])
def test_every_figure_of_the_table_is_cores(language: str, units: str) -> None:
    session = follow(language, units=units, **LINK)
    made = expected(LINK)
    assert table(session) == [line_of(one, units, language) for one in made]
    assert {one.fit.fits for one in made if one.fit} == {True, False} and any(one.decode.floor is None for one in made)


def test_the_units_switch_changes_the_bytes_and_nothing_else(open_page: OpenPage) -> None:
    session = open_page("en", PLANNER)
    before = table(session)
    session.segmented_control(key="units").set_value("decimal").run()
    after = table(session)
    assert [[title for _, title in line] for line in before] == [[title for _, title in line] for line in after]
    for one, other in zip(before, after, strict=True):
        changed = [place for place in range(len(one)) if one[place] != other[place]]
        assert changed == [2, 3, 4]


def test_the_link_sets_everything_and_comes_out_again() -> None:
    session = follow("en", **LINK)
    address = {name: str(word[0] if isinstance(word, list) else word) for name, word in session.query_params.items()}
    assert address == {"lang": "en", **LINK}
    assert session.multiselect(key="plan_models").value == LINK["models"].split(",")
    assert session.number_input(key="plan_batch").value == 16
    session.number_input(key="plan_batch").set_value(2).run()
    assert "2" in session.query_params["batch"] and len(table(session)) == 12


@pytest.mark.parametrize(
    "word",
    [
        {"models": "gpt-5"}, {"models": "llama-3.1-8b,llama-3.1-8b"}, {"models": "llama-3.1-8b,"},
        {"accelerators": "<img src=x onerror=alert(1)>"}, {"tp": "3"}, {"tp": "1,1"}, {"batch": "0"},
        {"batch": "1048577"}, {"context": "-1"}, {"weight_dtype": "bf17"}, {"kv_dtype": "bf16,bf16"},
        {"memory_fraction": "0"}, {"memory_fraction": "1.01"}, {"memory_fraction": "nan"},
    ],
)  # fmt: skip
def test_nonsense_in_a_link_is_ignored(word: dict[str, str]) -> None:
    session = follow("en", **word)
    assert not set(word) & set(session.query_params) and len(table(session)) == 9


def test_nothing_chosen_is_a_sentence() -> None:
    session = follow("en", models="")
    assert sentence("planner.nothing_asked", "en") in text(session) and "<tbody>" not in html(session)
    assert "models" in session.query_params


def test_the_largest_settings_are_borne(open_page: OpenPage) -> None:
    session = open_page("en", PLANNER)
    session.number_input(key="plan_batch").set_value(2**20)
    session.number_input(key="plan_context").set_value(2**27)
    session.number_input(key="plan_memory_fraction").set_value(0.01).run()
    assert not session.exception and len(table(session)) == 9


def test_more_rows_than_are_shown_are_told() -> None:
    names, cards = list(catalogue.models())[:9], list(accelerators())[:8]
    session = follow("zh", models=",".join(names), accelerators=",".join(cards))
    assert len(table(session)) == MOST_ROWS
    assert sentence("planner.cut", "zh", asked="72", shown=str(MOST_ROWS)) in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guess_is_answered_by_core_and_blocks_nothing(open_page: OpenPage, language: str) -> None:
    session = open_page(language, PLANNER)
    row = planner_guess.asked()
    assert row.fit.max_batch == expected_batch() and len(table(session)) == 9
    right = max(choice for choice in planner_guess.CHOICES if choice <= expected_batch())
    for choice in planner_guess.CHOICES:
        session.radio(key="plan_guess").set_value(choice).run()
        key = "guess_right" if choice == right else "guess_wrong"
        assert sentence(f"planner.{key}", language, answer=planner_guess.answer_words(row)) in text(session)
        assert scaled_bytes(row.weight_bytes, "binary") in text(session)


def expected_batch() -> int:
    card = accelerator_named(planner_guess.CARD)
    made = estimate(catalogue.shape(planner_guess.MODEL), Request(context=planner_guess.CONTEXT, accelerator=card))
    assert made.fit is not None and made.fit.max_batch is not None
    return made.fit.max_batch


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_takeaway_names_the_smallest_setup(language: str) -> None:
    session = follow(language, models="llama-3.1-8b,deepseek-v3", accelerators="h200-sxm,l4,a100-sxm-80gb", tp="1,2")
    said = text(session)
    assert sentence("planner.fits_first", language, model="Llama-3.1-8B", card="L4") in said
    assert sentence("planner.fits_nowhere", language, model="DeepSeek-V3") in said


def test_no_figure_is_typed_into_the_words() -> None:
    """The only digits in the planner's words are the file's limit, which is the reader's."""
    for language in LANGUAGES:
        typed = {key: text for key, text in words(language).items() if key.startswith("planner.")}
        with_digits = {key for key, text in typed.items() if re.search(r"\d", text)}
        assert with_digits == {"planner.drop_here", "planner.drop_refused"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_figures_of_a_row_open(open_page: OpenPage, language: str) -> None:
    session = open_page(language, PLANNER)
    row = session.selectbox(key="plan_open_at")
    row.set_value(row.options[1])
    figures = session.selectbox(key=f"plan_open_figure_{language}")
    figures.set_value("fit.needed_bytes").run()
    session.button(key="plan_open").click().run()
    assert not session.exception
    exact = table(session)[1][4][1].split(" / ")[0]
    assert exact in text(session) and any("M_{\\mathrm{KV}}" in block.value for block in session.get("latex"))


def test_every_figure_that_is_offered_has_a_name_and_a_formula() -> None:
    (made, *_) = expected(LINK)
    known = {figure for one in expected(LINK) for figure in derivations(one)}
    assert set(FIGURES) <= known and len(set(FIGURES)) == len(FIGURES)
    for language in LANGUAGES:
        assert all(f"derivations.figure_{figure.replace('.', '_')}" in words(language) for figure in FIGURES)
    assert derivations(made)["fit.needed_bytes"].value == made.fit.needed_bytes if made.fit else False


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_reader_should_know_is_said_once(language: str) -> None:
    session = follow(language, **LINK)
    said = text(session)
    for made in expected(LINK):
        for note in notes_of(made, language):
            assert said.count(note) == 1, note
    assert "<details" not in html(follow(language, models="llama-3.1-8b"))
