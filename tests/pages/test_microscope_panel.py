"""The microscope's panel: what stands on the screen is core's, in both languages, and the run is not touched."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.dissection import Dissection, dissection
from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.words import LANGUAGES, sentence
from pages.shared import stepping
from pages.shared.numbers import count
from pages.shared.resources import shelf
from pages.shared.started import Slot, Started
from pages.shared.visit import Visit
from tests.pages.screen import html, text

slots: dict[str, Slot] = {}


@pytest.fixture(autouse=True)
def memory_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test holds the slots that Streamlit would release, and a reading of the clock takes no time."""
    monkeypatch.setattr(stepping, "slot_of", lambda visit: slots.setdefault(visit.key, Slot()))
    monkeypatch.setattr("core.engine.microscope.READING_SECONDS", 0.0)


def visit_after(n_decodes: int, prompt: str = "床前明月光，", **settings: Any) -> Visit:
    """A visit whose run was prefilled and decoded so often, as page 1 leaves it."""
    model = shelf().ask("tiny").result()
    config = RunConfig(max_new=50, **settings)
    run = Run(model, model.prompt_ids(prompt, raw=True), config)
    for _ in range(1 + n_decodes):
        step(model, [run])
    visit = Visit()
    visit.started = Started(model=model, config=config, in_chat=False, prompt=prompt)
    visit.trace, visit.run_number = run.trace, 1
    slots[visit.key] = Slot(run)
    return visit


def app() -> None:
    import streamlit as st

    from pages.shared.tools.microscope import show

    show(st.session_state["visit"])


def opened(visit: Visit, language: str = "en") -> AppTest:
    session = AppTest.from_function(app, default_timeout=60)
    session.session_state["visit"] = visit
    session.session_state["language"] = language
    session.run()
    assert not session.exception
    return session


def measured(session: AppTest) -> AppTest:
    session.button(key="microscope_measure").click().run()
    assert not session.exception
    return session


def counted(visit: Visit, number: int, layer: int) -> Dissection:
    assert visit.started is not None and visit.trace is not None
    return dissection(visit.started.model, visit.started.config, visit.trace.steps[number], number, layer)


def rows(session: AppTest, table: int = 0) -> list[list[str]]:
    """The cells of a table's rows."""
    found = re.findall(r'<table class="tbt-anatomy">.*?</table>', html(session), flags=re.DOTALL)[table]
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row, flags=re.DOTALL)]
        for row in re.findall(r"<tr.*?>(.*?)</tr>", found, flags=re.DOTALL)
        if "<td" in row
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_a_run_it_says_what_to_press(language: str) -> None:
    session = opened(Visit(), language)
    assert sentence("microscope.no_run", language) in text(session)
    assert not session.selectbox and not session.button


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_numbers_are_cores(language: str) -> None:
    """Every operator's figures, and sums that equal the ledger."""
    visit = visit_after(2)
    session = opened(visit, language)
    layer = session.number_input(key="microscope_layer").value
    found = counted(visit, 2, int(layer))
    table = rows(session)
    for one, cells in zip(found.operators, table, strict=False):
        assert cells[0] == sentence(f"microscope.op_{one.name}", language)
        cost = one.cost
        assert cells[2:6] == [count(n) for n in (cost.flops, cost.weights_read, cost.kv_read, cost.kv_written)]
        for operand in one.inputs:
            assert f"{operand.symbol} [{', '.join(map(count, operand.sizes))}]" in cells[1]
    event = found.event
    recorded = [count(n) for n in (event.flops_exact, event.weight_bytes_read, event.kv_bytes_read)]
    assert table[-1][:4] == [sentence("microscope.sum_gap", language), "0", "0", "0"]
    assert table[-2][:4] == [sentence("microscope.sum_ledger", language), *recorded]
    assert table[-3][:4] == [sentence("microscope.sum_step", language), *recorded]
    assert sentence("microscope.not_measured", language) in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_phases_stand_side_by_side(language: str) -> None:
    visit = visit_after(1)
    session = measured(opened(visit, language))
    many, one = counted(visit, 0, 0), counted(visit, 1, 0)
    products = [each for each in many.operators if each.is_product]
    side = rows(session, 1)
    assert [cells[0] for cells in side] == [
        *(sentence(f"microscope.op_{each.name}", language) for each in products),
        sentence("microscope.others", language),
    ]
    assert f"{many.made.n_new} × " in side[0][1] and f"{one.made.n_new} × " in side[0][4]
    takeaway = next(block for block in html(session).split("\n") if "tbt-takeaway" in block)
    assert f"{many.pass_cost.flops / one.pass_cost.flops:.3g}" in takeaway
    assert f"{one.pass_cost.intensity:.3g}" in takeaway
    assert "tbt-share-prefill" in html(session) and "tbt-share-decode" in html(session)


def test_measuring_leaves_the_run_alone_and_times_every_operator() -> None:
    visit = visit_after(2)
    run, trace = slots[visit.key].run, visit.trace
    assert run is not None and run.cache is not None
    held = run.held_bytes
    session = opened(visit)
    assert {cells[-1] for cells in rows(session)[: len(counted(visit, 2, 0).operators)]} == {"–"}
    measured(session)
    assert not session.get("alert") and sentence("microscope.not_measured", "en") not in text(session)
    times = [cells[-1] for cells in rows(session)[: len(counted(visit, 2, 0).operators)]]
    assert all(re.fullmatch(r"[\d.e+]+ (µs|ms)", time) for time in times), times
    assert visit.trace == trace and run.trace == trace and run.held_bytes == held


def test_a_run_that_was_dropped_or_gone_is_measured_all_the_same() -> None:
    visit = visit_after(2)
    run = slots[visit.key].run
    assert run is not None
    run.drop_cache()
    session = measured(opened(visit))
    assert sentence("microscope.not_measured", "en") not in text(session)
    other = visit_after(1)
    slots[other.key].release()
    session = measured(opened(other))
    assert sentence("microscope.not_measured", "en") not in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_a_cache_there_are_only_matrices(language: str) -> None:
    visit = visit_after(1, use_cache=False)
    session = measured(opened(visit, language))
    assert sentence("microscope.compare_no_cache", language) in text(session)
    assert rows(session)[-1][1:4] == ["0", "0", "0"]


def test_before_the_first_decode_it_asks_for_one() -> None:
    session = opened(visit_after(0))
    assert sentence("microscope.compare_no_decode", "en") in text(session)
    assert "tbt-takeaway" not in html(session)


def test_a_prefix_in_chunks_says_which_pass_it_shows() -> None:
    visit = visit_after(0, prefill_chunk=2)
    session = opened(visit)
    found = counted(visit, 0, 0)
    assert len(found.passes) > 2
    assert sentence("microscope.sum_layer", "en", passes=count(len(found.passes))) in text(session)
    assert rows(session)[-1][1:4] == ["0", "0", "0"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_walks_from_operator_to_operator(language: str) -> None:
    session = opened(visit_after(1), language)
    found = counted(visit_after(1), 1, 0)
    names = [one.name for one in (*found.operators, *found.head)]
    session.pills(key="microscope_operator").set_value(names[0]).run()
    assert session.button(key="microscope_previous").disabled
    for name in names:
        assert sentence(f"microscope.about_{name}", language) in text(session)
        assert f'data-operator="{name}" aria-current="step"' in html(session)
        if name != names[-1]:
            session.button(key="microscope_next").click().run()
            assert not session.exception
    assert session.button(key="microscope_next").disabled


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guess_is_answered_by_core(language: str) -> None:
    session = opened(visit_after(1), language)
    right, wrong = (sentence(f"microscope.guess_{word}", language) for word in ("right", "wrong"))
    assert right not in text(session) and wrong not in text(session)
    session.radio(key="microscope_guess").set_value(3).run()
    assert wrong in text(session)
    session.radio(key="microscope_guess").set_value(1).run()
    assert right in text(session) and wrong not in text(session)


def test_a_step_that_was_undone_gives_way() -> None:
    visit = visit_after(2)
    session = opened(visit)
    assert session.selectbox(key="microscope_step").value == 2
    run = slots[visit.key].run
    assert run is not None
    run.step_back()
    visit.trace = run.trace
    session.run()
    assert not session.exception and session.selectbox(key="microscope_step").value == 1
