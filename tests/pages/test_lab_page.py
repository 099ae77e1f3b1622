"""The lab's page: planned, predicted, run on the tiny model, found again, queued, refused."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.engine.exclusive import Measurement
from core.lab.sweep.plan import cells
from core.lab.sweep.table import COLUMNS, read_sweep
from core.refusal import Refusal
from core.words import LANGUAGES, catalogue, sentence
from pages.shared.lab.kept import Begun, KeptSweep, SweepStore, cache_folder
from pages.shared.lab.opened import MOST_CELLS, read_file
from pages.shared.lab.report import report_html
from pages.shared.lab.shown import shown_sweep
from pages.shared.lab.visitor import take_name
from pages.shared.numbers import count
from pages.shared.resources import engine, shelf
from tests.pages.screen import arrive, html, text

PAGE = "5_lab.py"
SMALL = {"model": "tiny", "contexts": "16,64,100", "batches": "1,2", "repeats": "1"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepStore]:
    """A store of the test's own."""
    own = SweepStore(tmp_path)
    for module in ("visitor", "plan", "results", "start", "hand_in"):
        monkeypatch.setattr(f"pages.shared.lab.{module}.store", lambda: own)
    yield own


def ready(language: str, **link: str) -> AppTest:
    """A session whose plan's cost is known."""
    session = arrive(PAGE, language, **{**SMALL, **link})
    return until(session, lambda: not session.button(key="lab_start").disabled)


def until(session: AppTest, holds: Any) -> AppTest:
    for _ in range(400):
        if holds():
            return session
        time.sleep(0.05)
        session.run()
        assert not session.exception
    raise AssertionError("it never came")


def key_of(session: AppTest) -> str:
    return str(session.session_state["lab_visitor"])


def own(store: SweepStore, session: AppTest) -> list[KeptSweep]:
    return store.of(key_of(session))


def run(session: AppTest, store: SweepStore) -> KeptSweep:
    """Presses the button, and looks until it is over."""
    session.button(key="lab_start").click().run()
    assert not session.exception
    until(session, lambda: store.under_way(key_of(session)) is None)
    session.run()
    return own(store, session)[0]


def chart(session: AppTest, key: str) -> dict[str, Any]:
    given = [json.loads(part.proto.json) for part in session.get("bidi_component")]
    (found,) = [part["figure"] for part in given if part.get("key") == key]
    return dict(found)


def drawn(session: AppTest) -> str:
    return unescape("\n".join(json.loads(part.proto.json).get("html", "") for part in session.get("bidi_component")))


def alerts(session: AppTest) -> list[str]:
    return re.findall(r'<p class="tbt-notice tbt-refusal" role="alert">(.*?)</p>', html(session))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sweep_from_plan_to_takeaway(store: SweepStore, language: str) -> None:
    session = ready(language)
    assert sentence("lab.none", language) in text(session)
    session.number_input(key="lab_predict_16_1").set_value(5.0).run()
    sweep = run(session, store)
    head, rows = read_sweep(sweep.path.read_text(encoding="utf-8"), "")
    assert rows == sweep.rows and [row.spot for row in rows] == list(sweep.plan.spots())
    assert [row.kv_gap_bytes for row in rows] == [0] * 6
    assert head["model"] == "tiny" and head["predicted"] == "n=16 B=1 0.005 s" and head["contexts"] == "16 64 100"
    figure = chart(session, "lab_latency")
    points = [trace for trace in figure["data"] if "error_y" in trace]
    assert [trace["name"] for trace in points] == ["B=1", "B=2"]
    for trace, batch in zip(points, (1, 2), strict=True):
        of_batch = [cell for cell in cells(rows) if cell.batch == batch]
        assert trace["x"] == [16, 64, 100]
        assert trace["y"] == pytest.approx([1e3 * cell.median_s for cell in of_batch], rel=1e-5)
    (predicted,) = [trace for trace in figure["data"] if trace["name"] == sentence("lab.predicted_points", language)]
    assert (predicted["x"], predicted["y"]) == ([16], [5.0])
    shown = text(session)
    for row in rows:
        assert count(row.kv_bytes_formula) in shown
    (takeaway,) = re.findall(r'<p class="tbt-takeaway">(.*?)</p>', html(session))
    assert takeaway.startswith(sentence("lab.takeaway_gap", language, points=6, gap=0))
    report = report_html(shown_sweep(sweep).report, language)
    assert "<html" in report and "<script" not in report
    kv = chart(session, "lab_kv")["data"]
    assert kv[0]["y"] == kv[1]["y"] and kv[2]["y"] == kv[3]["y"]


def test_the_table_is_the_file(store: SweepStore) -> None:
    session = ready("en")
    sweep = run(session, store)
    lines = [line for line in sweep.path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(io.StringIO("\n".join(lines))))
    assert tuple(table[0]) == COLUMNS and len(table) == 6
    assert [float(row["decode_step_s"]) for row in table] == [row.decode_step_s for row in sweep.rows]
    session.segmented_control(key="lab_heat_kind").set_value("tokens").run()
    for cell in cells(sweep.rows):
        value = cell.batch / cell.median_s
        assert (f"{value:,.2f}" if value < 99.95 else f"{value:,.0f}") in html(session)


@pytest.mark.parametrize("language", LANGUAGES)
def test_stop_keeps_what_is_measured_and_it_goes_on(store: SweepStore, language: str) -> None:
    session = ready(language, contexts="16,32,64,100", repeats="50", fill="fast")
    session.button(key="lab_start").click().run()
    until(session, lambda: len(own(store, session)[0].rows) > 2)
    assert sentence("lab.running_already", language) in text(session) and session.button(key="lab_start").disabled
    session.button(key="lab_stop").click().run()
    until(session, lambda: store.under_way(key_of(session)) is None)
    session.run()
    assert sentence("lab.filled_fast", language) in text(session)
    sweep = own(store, session)[0]
    n_rows = len(sweep.rows)
    assert 2 < n_rows < sweep.n_planned
    assert read_sweep(sweep.path.read_text(encoding="utf-8"), "")[1] == sweep.rows
    session.button(key="lab_go_on").click().run()
    until(session, lambda: len(sweep.rows) > n_rows or not sweep.is_under_way)
    if sweep.begun is not None:
        sweep.begun.measurement.cancel()
    until(session, lambda: not sweep.is_under_way)
    assert len(sweep.rows) > n_rows and len({row.spot for row in sweep.rows}) == len(sweep.rows)


def test_another_session_finds_it_by_its_name_alone(store: SweepStore) -> None:
    session = ready("en", repeats="40", fill="fast")
    session.button(key="lab_start").click().run()
    until(session, lambda: bool(own(store, session)[0].rows))
    key = key_of(session)
    other = arrive(PAGE, "zh", **SMALL)
    assert sentence("lab.none", "zh") in text(other) and key_of(other) != key
    for name in ("short", "../../etc/passwd......"):
        browser_says(other, name)
        assert key_of(other) != key and not own(store, other)
    browser_says(other, key)
    assert key_of(other) == key and store.of(key)[0].is_under_way
    assert "progressbar" in drawn(other)
    until(other, lambda: store.under_way(key) is None)
    assert len(store.of(key)[0].rows) == 3 * 2 * 40


def browser_says(session: AppTest, name: str) -> None:
    """What the browser says it remembers."""
    state = {"lab_visitor": key_of(session)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.session_state", state)
        take_name(name)
    session.session_state["lab_visitor"] = state["lab_visitor"]
    session.run()
    assert not session.exception


def test_a_server_that_was_killed_left_valid_files(store: SweepStore) -> None:
    session = ready("en")
    session.number_input(key="lab_predict_100_2").set_value(7.25).run()
    sweep = run(session, store)
    sweep.path.write_bytes(sweep.path.read_bytes()[:-9])  # in the middle of a line
    later = SweepStore(store.folder)
    (found,) = later.of(key_of(session))
    assert found.rows == sweep.rows[:-1] and found.plan == sweep.plan
    assert [(one.context, one.batch, one.step_s) for one in found.predictions] == [(100, 2, 0.00725)]
    assert later.of("somebody else") == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_second_visitor_queues(store: SweepStore, language: str) -> None:
    first = ready(language, repeats="50", fill="fast")
    first.button(key="lab_start").click().run()
    until(first, lambda: bool(own(store, first)[0].rows))
    second = ready(language)
    start, end = sentence("lab.others_measure", language, done="|", total="|", waiting="|").split("|")[::3]
    assert start in text(second) and end in text(second)
    second.button(key="lab_start").click().run()
    assert not own(store, second)[0].rows
    until(
        second,
        lambda: sentence("lab.waits", language, place=1, done="|", total="|", left="").split("|")[0] in drawn(second),
    )
    first.run()
    assert sentence("lab.others_wait", language, n=1) in drawn(first)
    begun = own(store, first)[0].begun
    assert begun is not None
    begun.measurement.cancel()
    until(second, lambda: store.under_way(key_of(second)) is None)
    assert len(own(store, second)[0].rows) == 6
    assert key_of(first) != key_of(second) and len(store.of(key_of(first))) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_does_not_fit_is_refused_beforehand(store: SweepStore, language: str) -> None:
    session = arrive(PAGE, language, **SMALL)
    limit = next(model for model in visitor_models() if model.name == "tiny").config.context_limit
    for link, keys in (
        ({"contexts": "16,100000"}, "sweep.context_too_long"),
        ({"model": "random", "contexts": "131072", "batches": "64", "fill": "fast"}, "sweep.too_large"),
        (
            {"model": "random", "n_layers": "64", "n_heads": "64", "n_kv_heads": "8", "head_dim": "64"},
            "sweep.random_too_large",
        ),
        ({"contexts": "16,x"}, None),
        ({"repeats": "50", "contexts": ",".join(map(str, range(2, 60)))}, "lab.too_many_rows"),
    ):
        for name, word in link.items():
            state: Any = int(word) if name in ("repeats", "n_layers", "n_heads", "n_kv_heads", "head_dim") else word
            session.session_state[f"lab_{name}"] = state
        session.run()
        assert not session.exception and session.button(key="lab_start").disabled
        (alert,) = alerts(session)
        if keys:
            pattern = re.split(r"\{[^}]*\}", sentence_of(keys, language))[0]
            assert alert.startswith(pattern[:20]) if pattern else alert
        for name, word in {**SMALL, "fill": "prefill"}.items():
            session.session_state[f"lab_{name}"] = int(word) if name == "repeats" else word
    assert limit < 100000 and not own(store, session)


def sentence_of(key: str, language: str) -> str:
    return catalogue(language)[key]


def visitor_models() -> list[Any]:
    return shelf().loaded


@pytest.mark.parametrize("language", LANGUAGES)
def test_heads_are_compared_side_by_side(store: SweepStore, language: str) -> None:
    session = ready(
        language, compare="heads", n_layers="2", n_heads="4", n_kv_heads="2", head_dim="16", contexts="16,64"
    )
    session.radio(key="lab_fastest_heads").set_value(0).run()
    run(session, store)
    kept = own(store, session)
    assert sentence("lab.filled_fast", language) not in text(session)
    assert [sweep.head["model"] for sweep in kept] == [f"random-L2-h4-kv{n}-dh16" for n in (4, 2, 1)]
    by_heads = [sweep.rows[-1].kv_bytes_formula for sweep in kept]
    assert by_heads == [by_heads[2] * 4, by_heads[2] * 2, by_heads[2]]
    assert len({sweep.compared for sweep in kept}) == 1
    shown = text(session)
    for name in ("MHA", "GQA", "MQA"):
        assert name in shown
    takeaways = re.findall(r'<p class="tbt-takeaway">(.*?)</p>', html(session))
    assert len(takeaways) == 2
    guessed = sentence("lab.guess_wrong", language, guess="|").split("|")[0]
    assert guessed in takeaways[0]


def test_an_error_in_mid_sweep_is_a_sentence(store: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ready("en")
    added = []

    def full(self: object, row: object) -> None:
        if len(added) == 2:
            raise Refusal("sweep.file_unwritable", file="x.csv", reason="No space left on device")
        added.append(row)

    monkeypatch.setattr("core.lab.sweep.table.SweepFile.add", full)
    sweep = run(session, store)
    assert len(sweep.rows) == 2 and not sweep.is_under_way
    assert alerts(session) == [sentence("sweep.file_unwritable", "en", file="x.csv", reason="No space left on device")]
    assert engine().status().measuring is None


def test_another_machines_file_is_laid_over(store: SweepStore) -> None:
    session = ready("en")
    sweep = run(session, store)
    other = sweep.path.read_text(encoding="utf-8").replace("# model: tiny", "# model: <b>tiny</b>")
    session.session_state["lab_opened"] = read_file("theirs.csv", other.encode())
    session.run()
    assert not session.exception
    assert "&lt;b&gt;tiny" in html(session) and "<b>tiny" not in html(session)
    session.multiselect(key=f"lab_overlay_{sweep.name}").set_value(["file"]).run()
    names = [trace["name"] for trace in chart(session, "lab_latency")["data"]]
    assert len(names) == len([name for name in names if "<" not in name]) and any(
        "theirs.csv" in name for name in names
    )
    assert sentence("lab.versus", "en") in text(session)
    session.selectbox(key="lab_shown").set_value("file").run()
    assert not session.exception and len(alerts(session)) == 0


def file_with(*lines: str) -> bytes:
    return "\n".join(["# token-by-token sweep 1", "# model: m", ",".join(COLUMNS), *lines, ""]).encode()


GOOD = "16,1,0,100,100,0.5,7,6,5,,"


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b"", "lab.file_no_sweep"),
        (b"\xff\xfe\x00", "lab.file_no_sweep"),
        (b"a,b\n1,2\n", "lab.file_no_sweep"),
        (b"x" * (3 << 20), "lab.file_no_sweep"),
        (file_with('"' + "1" * 200_000), "sweep.row_broken"),
        (file_with(GOOD, "16,1"), "sweep.row_broken"),
        (file_with("9" * 400 + GOOD[2:]), "lab.file_absurd"),
        (file_with("0" + GOOD[2:]), "lab.file_absurd"),
        (file_with(GOOD.replace("0.5", "1e300")), "lab.file_absurd"),
        (file_with(*(f"{n}{GOOD[GOOD.index(',') :]}" for n in range(2, 3 + MOST_CELLS))), "lab.file_absurd"),
        (file_with(), "lab.file_empty"),
    ],
)
def test_a_hostile_file_is_a_sentence(content: bytes, key: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_file("x.csv", content)
    assert refused.value.key == key


def test_a_good_file_is_read() -> None:
    shown = read_file("x" * 300 + ".csv", file_with(GOOD))
    assert len(shown.report.rows) == 1 and len(shown.title) < 60


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e400", "1e300", "0.0", "-5"])
def test_an_impossible_prediction_in_a_file_is_none(seconds: str) -> None:
    """The chart has no axis for it, and a page that fails has no button that closes the file."""
    head = f"# predicted: n=16 B=1 {seconds} s; n=16 B=1 0.25 s\n".encode()
    session = arrive(PAGE, "en", **SMALL)
    session.session_state["lab_opened"] = shown = read_file(
        "x.csv", file_with(GOOD).replace(b"# model", head + b"# model")
    )
    assert [one.step_s for one in shown.report.predictions] == [0.25]
    session.run()
    assert not session.exception and session.button(key="lab_close")


@pytest.mark.parametrize(
    "row", [GOOD.replace("100,100", "0,0"), GOOD.replace("0.5", "1e308"), GOOD.replace("100,100", "9" * 400 + ",100")]
)
def test_a_kept_file_with_impossible_rows_is_left_out(tmp_path: Path, row: str) -> None:
    """As one that is dropped on the page is refused: over either the page would fail each time it is drawn."""
    first = SweepStore(tmp_path)
    for number, lines in enumerate(([row, row.replace("16,", "32,", 1)], [GOOD])):
        first.new_paths("k" * 22, 1)[0].with_name(f"{number:015d}.csv").write_bytes(file_with(*lines))
    assert [sweep.name for sweep in SweepStore(tmp_path).of("k" * 22)] == [f"{1:015d}"]


def test_the_folder_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TBT_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = cache_folder()
    assert first == cache_folder() and first.stat().st_mode & 0o077 == 0
    first.chmod(0o755)  # somebody else could write there
    assert cache_folder() != first and cache_folder().stat().st_mode & 0o077 == 0
    monkeypatch.setenv("TBT_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "sweeps"


@pytest.mark.parametrize("place", ["file", "file/below", "~nobody-is-called-so", "long" * 100])
def test_without_the_operators_folder_the_lab_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TBT_CACHE", place if place.startswith("~") else str(tmp_path / place))
    monkeypatch.setattr(logging.getLogger("pages"), "propagate", True)
    assert cache_folder().parent == tmp_path and cache_folder().is_dir()
    assert "TBT_CACHE" in caplog.text and str(tmp_path) not in caplog.text


def test_remaining_time_follows_what_was_seen() -> None:
    points = [lambda: None] * 10
    measurement = Measurement("sweep", points)
    begun = Begun(measurement, filling_s=10.0, stepping_s=30.0, n_spots=6)
    assert begun.remaining_s(100.0) == 40.0
    begun.begun_at = 100.0
    measurement.done = [None] * 4  # type: ignore[list-item]
    assert begun.remaining_s(120.0) == pytest.approx(60.0)  # filling took twice as long as foreseen
    measurement.done = [None] * 10  # type: ignore[list-item]
    assert begun.remaining_s(130.0) == 0.0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_token_with_and_without_the_cache(store: SweepStore, language: str) -> None:
    session = ready(language)
    session.radio(key="lab_phases_guess_100").set_value(2000).run()
    session.button(key="lab_phases_start").click().run()
    until(session, lambda: session.session_state["lab_phases_job"].is_over())
    session.run()
    found = session.session_state["lab_phases_job"].result()
    assert [one.context for one in found] == [16, 64, 100] and not store.of(key_of(session))
    assert f"{found[-1].whole_flops / found[-1].cached_flops:,.1f}×" in drawn(session)
    (takeaway,) = re.findall(r'<p class="tbt-takeaway">(.*?)</p>', html(session))
    assert f"{found[-1].whole_s / found[-1].cached_s:,.0f}" in takeaway
