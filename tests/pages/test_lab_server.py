"""Beyond one machine on page 5: the command, a server's file and its floor, and what a stranger may do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from streamlit.testing.v1 import AppTest

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.plan import PointKey
from core.lab.remote.point import RemotePoint
from core.lab.remote.under import Assumed, against, floors_under
from core.words import LANGUAGES, sentence
from pages.shared.lab.drop import OWN, SERVER, take
from pages.shared.lab.kept import SweepStore
from pages.shared.lab.server.opened import ServerSweep, read_server_file
from pages.shared.lab.server.report import server_report_html
from pages.shared.lab.server.said import cache_text, takeaway_text
from tests.pages.screen import arrive, html, text
from tests.pages.test_lab_page import GOOD, SMALL, alerts, file_with
from tests.server_sweeps import DTYPES, HEADS, healthy, point, queued, step_s, written

PAGE = "5_lab.py"
HOSTILE = "</style><script>window.hacked = 1</script><img src=x onerror=alert(1)>&amp;{fmt}**[a](b)"
FAILED = RemotePoint(key=PointKey(65536, 16, 0), retries=3, fault=Fault(Kind.REJECTED))
POINTS = [*healthy(), queued(1024, 64), FAILED]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store of the test's own."""
    own = SweepStore(tmp_path)
    for module in ("visitor", "plan", "results", "start", "hand_in"):
        monkeypatch.setattr(f"pages.shared.lab.{module}.store", lambda: own)
    yield


def drop(session: AppTest, field: str, name: str, content: bytes) -> AppTest:
    """What the browser does with a file that is dropped on a field."""
    keys = ("lab_server_files", "lab_server_number", "lab_server_shown", "lab_opened", "lab_refused")
    state: dict[str, Any] = {key: session.session_state[key] for key in keys if key in session.session_state}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.session_state", state)
        take(field, name, content)
    for key, value in state.items():
        session.session_state[key] = value
    session.run()
    assert not session.exception
    return session


def assumed(card: str, ranks: int) -> Assumed:
    return Assumed(
        shape=catalogue.shape("qwen3-32b"),
        weight_dtypes=weight_dtypes("bf16"),
        kv_dtypes=kv_dtypes("fp8"),
        accelerator=accelerator_named(card),
        ranks=ranks,
    )


def takeaways(session: AppTest) -> list[str]:
    return [unescape(found) for found in re.findall(r'<p class="tbt-takeaway">(.*?)</p>', html(session))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_from_the_command_to_the_takeaway(language: str) -> None:
    session = arrive(PAGE, language, **SMALL)
    assert sentence("server.none", language) in text(session)
    (code,) = [block.value for block in session.code]
    assert code == (
        ".venv/bin/python -m core sweep --endpoint http://127.0.0.1:8000/v1 --model qwen3-32b "
        "--contexts 1024,4096,16384 --batches 1,4,16 --repeats 3 --csv server.csv"
    )
    session.radio(key="lab_server_guess").set_value(5).run()
    drop(session, OWN, "theirs.csv", written(POINTS).encode())  # the other field takes it too
    found = read_server_file("theirs.csv", written(POINTS)).found
    shown = text(session)
    for one in healthy():
        assert f"{one.key.batch / step_s(one.key.context, one.key.batch):,.1f}" in shown
    noted = sentence("endpoint.note_queued", language)
    assert sentence("server.noted", language, n=1, all=11, what=noted) in shown
    refused = sentence("endpoint.fault_rejected", language)
    assert sentence("server.given_up", language, n=1, all=11, what=refused) in shown
    assert sentence("server.again", language, n=1, times=3, all=11) in shown
    assert takeaways(session) == [takeaway_text(found, {}, language)] and not alerts(session)
    assert session.selectbox(key="lab_server_kv_1").value == "fp8"  # as the file says it

    session.selectbox(key="lab_server_card").set_value("h100-sxm")
    session.selectbox(key="lab_server_ranks").set_value(4).run()
    floors, shown = floors_under(assumed("h100-sxm", 4), found.cells), text(session)
    n_ratios = 0
    for cell in found.cells:
        for spread, floor in zip((cell.step, cell.ttft), floors[cell.context, cell.batch], strict=True):
            ratio = against(spread and spread.median_s, floor)
            assert ratio is None or f"{ratio.ratio:,.2f}×" in shown
            n_ratios += ratio is not None
    assert n_ratios == 20
    (said,) = takeaways(session)
    assert said.startswith(takeaway_text(found, floors, language)) and not alerts(session)
    assert sentence("lab.guess_right", language, guess="|").split("|")[-1] in said

    session.selectbox(key="lab_server_card").set_value("t4")
    session.selectbox(key="lab_server_ranks").set_value(1).run()
    (wrong,) = alerts(session)
    beginning = sentence(
        "server.impossible_step", language, **dict.fromkeys(("n", "batch", "measured", "floor", "points"), "|")
    )
    assert wrong.startswith(beginning.split("|")[0])
    assert takeaways(session)[0] == takeaway_text(found, {}, language)  # nothing is said of a floor that cannot be


def test_a_hostile_file_is_shown_as_text() -> None:
    heads = {"served model": HOSTILE, "endpoint": HOSTILE, "model": HOSTILE, "date": HOSTILE, HOSTILE: "x"}
    session = drop(arrive(PAGE, "zh", **SMALL), SERVER, f"{HOSTILE}.csv", written(healthy(), heads).encode())
    assert (
        "<script>window.hacked" not in html(session)
        and "<img src" not in html(session)
        and HOSTILE[:40] in text(session)
    )
    start, end = sentence("server.no_estimate", "zh", model="|").split("|")
    assert start in text(session) and end in text(session)
    assert not any(box.key == "lab_server_card" for box in session.selectbox)
    sweep = read_server_file("x.csv", written(healthy(), heads))
    report = server_report_html(sweep, None, "zh", question=HOSTILE, conclusion=HOSTILE)
    assert "<script" not in report and "<img" not in report and report.count("</style>") == 1


def test_wrong_files_are_refused_where_they_were_dropped() -> None:
    session = arrive(PAGE, "en", **SMALL)
    good = written(POINTS)
    drop(session, SERVER, "a.csv", good.replace("queued", "quoted").encode())
    assert alerts(session) == [
        escape(sentence("server.row_broken", "en", file="a.csv", line=len(good.splitlines()) - 1))
    ]
    drop(session, SERVER, "b.csv", b"\xff\xfe\x00")
    assert alerts(session) == [sentence("lab.file_no_sweep", "en", file="b.csv")]
    drop(session, SERVER, "c.csv", good.encode() + b"#" * (3 << 20))
    assert alerts(session) == [sentence("lab.file_no_sweep", "en", file="c.csv")]
    drop(session, SERVER, "own.csv", file_with(GOOD))  # this lab's own kind opens where its kind does
    assert not alerts(session) and session.session_state["lab_opened"].report.rows[0].context == 16
    assert sentence("server.none", "en") in text(session)


def test_two_files_are_compared() -> None:
    session = arrive(PAGE, "en", **SMALL)
    drop(session, SERVER, "before.csv", written(healthy()).encode())
    faster = [
        replace(one, decode_step_s=(one.decode_step_s or 0) / 2, ttft_s=(one.ttft_s or 0) / 4) for one in healthy()
    ]
    drop(session, SERVER, "after.csv", written(faster).encode())
    session.selectbox(key="lab_server_earlier_2").set_value(1).run()
    assert not session.exception
    said = sentence("server.takeaway_earlier", "en", n=9, step="0.50", first="0.25")
    assert said in takeaways(session) and html(session).count("<td>0.25×</td>") == 9
    session.button(key="lab_server_close").click().run()
    assert "before.csv" in text(session) and "after.csv" not in text(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_report_says_what_the_page_says(language: str) -> None:
    sweep = read_server_file("a.csv", written(POINTS, HEADS | DTYPES))
    on_four = assumed("h100-sxm", 4)
    report = server_report_html(sweep, on_four, language, question="Q?", conclusion="C.", guessed=5)
    body = ElementTree.fromstring(re.sub(r"<!doctype html>|<meta[^>]*>|&nbsp;", "", report))
    shown = "".join(body.itertext())
    floors = floors_under(on_four, sweep.found.cells)
    for words in (takeaway_text(sweep.found, floors, language), "Q?", "C.", "http://gpu7:8000", "Qwen/Qwen3-32B"):
        assert words in shown
    ratio = against(step_s(4096, 4), floors[4096, 4].step)
    assert ratio is not None and f"{ratio.ratio:,.2f}×" in shown
    assert sentence("server.guess_times", language, times=5) in shown
    assert {part.get("class") for part in body.iter("section")} >= {"tbt-report-floor", "tbt-report-fit"}
    bare = server_report_html(only_failures(), None, language)
    assert sentence("server.takeaway_none", language) in bare and "<svg" not in bare


def only_failures() -> ServerSweep:
    return read_server_file("a.csv", written([replace(FAILED, key=PointKey(64, 1, n)) for n in range(3)]))


def test_one_point_alone_says_what_it_can() -> None:
    sweep = read_server_file("a.csv", written([point(1024, 4)]))
    assert sentence("server.takeaway_one", "en", n="1,024", batch=4, first="102 ms") == takeaway_text(
        sweep.found, {}, "en"
    )


def test_a_cache_that_is_counted_exactly_is_said_to_be() -> None:
    exact = [point(1024, batch, kv_tokens=1024.0 * batch) for batch in (1, 4)]
    off = [*exact, point(4096, 1, kv_tokens=4096 * 1.25)]
    said = [cache_text(read_server_file("s.csv", written(points)).found, "en") for points in (exact, off)]
    assert said[0] == sentence("server.kv_exact", "en", n="2") and "25" in said[1]
