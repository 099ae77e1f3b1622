"""Save, export and open below the stage: what is saved comes back as a replay, and nobody's own run is touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.engine.saved_run import SUFFIX, SavedRun, open_saved, save
from core.words import LANGUAGES, sentence
from pages.shared import resources
from pages.shared.bundle import bundle
from pages.shared.facts import machine_words
from pages.shared.shelf import Shelf
from pages.shared.tools.one_script import one_script
from pages.shared.tools.webpage import web_page
from tests.pages import screen
from tests.pages.conftest import PREFILL_AND_DECODE

HOSTILE = "</script><img src=x onerror=alert(1)>月"
Offered = dict[str, Callable[[], bytes]]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What the download buttons of the newest run of a page would make, by the end of the file's name."""
    made: Offered = {}

    def button(label: str, data: Callable[[], bytes], name: str, *more: Any, disabled: bool, **others: Any) -> bool:
        if disabled:
            made.clear()
        else:
            made[name[name.rindex(".") :]] = data
        return False

    monkeypatch.setattr(st, "download_button", button)
    return made


def arrive(page: str, language: str, **link: str) -> AppTest:
    """A visitor who has chosen the tool, which then stands below the stage."""
    return screen.arrive(page, language, tool="keepsake", **link)


def begun(language: str, steps: int = 3, **link: str) -> AppTest:
    settings = {"model": "tiny", "prompt": "床前明月光，", **link}
    session = screen.press(arrive(PREFILL_AND_DECODE, language, **settings), "prefill")
    for _ in range(steps - 1):
        screen.press(session, "decode")
    return session


def drop(session: AppTest, file: bytes, name: str = f"run{SUFFIX}") -> AppTest:
    number = session.session_state["keepsake_fields"]
    session.file_uploader(key=f"keepsake_file_{number}").set_value((name, file, "application/octet-stream")).run()
    assert not session.exception
    return session


def whole(session: AppTest) -> dict[str, Any]:
    """The header of a frame with all steps of what stands on the stage."""
    return screen.header(screen.send(session, "look"))


@pytest.fixture
def saved(offered: Offered) -> SavedRun:
    begun("en")
    return open_saved(offered[SUFFIX]())


def test_before_a_run_there_is_nothing_to_save(offered: Offered) -> None:
    session = arrive(PREFILL_AND_DECODE, "en", model="tiny")
    assert offered == {} and sentence("keepsake.nothing", "en") in screen.text(session)


@pytest.mark.parametrize("cache", ["1", "0"])
def test_a_saved_run_opens_elsewhere_as_it_was(offered: Offered, cache: str) -> None:
    own = whole(begun("en", cache=cache))
    file = offered[SUFFIX]()
    other = drop(arrive(PREFILL_AND_DECODE, "zh", model="smollm2"), file)
    shown = whole(other)
    for name in ("steps", "prompt", "scales", "facts", "total"):
        assert shown[name] == own[name], name
    assert shown["replay"] == "file" and not any(shown["can"].values())
    assert shown["visit"] != own["visit"] and shown["line"]["model"] == "tiny"
    assert "（UTC）" in shown["notice"]["text"]
    steps = [row["step"] for row in [*shown.get("rows", []), *filter(None, [shown.get("attention")])]]
    assert steps == ([0, 1, 2] if cache == "1" else [])


def test_it_is_saved_as_it_is_when_the_button_is_pressed(offered: Offered) -> None:
    session = begun("en")
    make = offered[SUFFIX]
    assert len(open_saved(make()).trace.steps) == 3
    screen.press(session, "decode")
    assert len(open_saved(make()).trace.steps) == 4


def test_a_model_that_is_not_here_is_not_needed(saved: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(saved.model.config, name="a model of another school")
    file = save(replace(saved, model=replace(saved.model, config=config)))
    nobody = Shelf(load=lambda name: (_ for _ in ()).throw(AssertionError(name)), extra=list)
    nobody.start()
    nobody.wait_until_started()
    monkeypatch.setattr(resources, "_shelf", lambda: nobody)
    shown = whole(drop(arrive(PREFILL_AND_DECODE, "en"), file))
    assert shown["facts"]["model"] == "a model of another school" and len(shown["steps"]) == 3
    nobody.stop()


def test_the_own_run_waits_and_comes_back(saved: SavedRun) -> None:
    session = begun("en", steps=2, prompt="白日依山尽")
    own = whole(session)
    drop(session, save(saved))
    assert whole(session)["steps"] != own["steps"]
    for action in ("prefill", "decode", "step_back", "reset"):  # meant for the file: nobody carries them out
        screen.send(session, action)
    session.button(key="keepsake_close").click().run()
    back = whole(session)
    assert all(back[name] == own[name] for name in ("visit", "run", "version", "steps", "prompt"))
    assert "replay" not in back and back["can"]["decode"]


def test_figures_of_a_file_open(saved: SavedRun) -> None:
    session = drop(arrive(PREFILL_AND_DECODE, "en", model="tiny"), save(saved))
    for figure in ("flops_exact", "kv_reserved", "tpot", "model_probability_0"):
        screen.send(session, "open", name=figure, value=1)
        assert session.get("dialog") and session.latex, figure
    screen.send(session, "open", name="flops_exact", value=99)
    assert not session.get("dialog")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wrong_file_gets_a_sentence_and_changes_nothing(saved: SavedRun, language: str) -> None:
    session = drop(begun(language), save(saved))
    before = whole(session)
    for junk, key in ((b"", "empty"), (b"PK\x03\x04", "not_ours"), (save(saved)[:-9], "damaged")):
        drop(session, junk, "<img src=x onerror=alert(1)>.zip")
        assert sentence(f"saved.{key}", language) in screen.text(session) and "<img" not in screen.html(session)
        assert whole(session)["visit"] == before["visit"]
    drop(session, save(saved), "<b>bold</b>.tbtrun")
    assert "&lt;b&gt;bold" in screen.html(session) and sentence("saved.empty", language) not in screen.text(session)


def test_two_visitors_open_files_apart(saved: SavedRun) -> None:
    one, other = (arrive(PREFILL_AND_DECODE, "en", model="tiny") for _ in range(2))
    drop(one, save(saved))
    assert screen.header(one)["total"] == 3 and screen.header(other.run())["total"] == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_web_page_holds_the_run_and_asks_for_nothing(offered: Offered, language: str) -> None:
    begun(language, prompt=HOSTILE)
    page = offered[".html"]().decode()
    assert page.startswith("<!doctype html>") and len(page) < 1 << 20
    assert "default-src &#x27;none&#x27;" in page and page.lower().count("</script>") == 3
    assert "<img" not in page and "&lt;/script&gt;&lt;img" in page
    assert sentence("keepsake.page_what", language) in page
    assert sentence("stage.play", language) in page and "http://" not in page.replace("http://www.w3.org/", "")


def test_the_web_page_of_an_opened_file_is_of_that_run(offered: Offered, saved: SavedRun) -> None:
    session = drop(begun("en", steps=1, prompt="白日依山尽"), save(saved))
    assert screen.header(session)["replay"] == "file"
    assert offered[".html"]() == web_page(saved, "en", "binary")
    assert open_saved(offered[SUFFIX]()).trace.output_ids == saved.trace.output_ids


def test_machines_are_named_in_words() -> None:
    assert machine_words("f16", "cpu", 2, "en") == "f16 · CPU, 2 cores"
    assert machine_words("f16", "cpu", 1, "en") == "f16 · CPU, 1 core"
    assert machine_words("bf16", "cuda", 0, "en") == "bf16 · CUDA"


def test_modules_become_one_script() -> None:
    modules = {
        "a.js": "import { b as c, d } from './b.js';\n\nexport class A {}\nexport const E = 1;",
        "b.js": "export async function* b() {}\nexport function d() {}",
    }
    script = one_script(modules, "a.js")
    assert script.index("modules['b.js'] =") < script.index("modules['a.js'] =")
    assert "const { b: c, d } = modules['b.js'];" in script and "return { A, E };" in script
    assert "export" not in script and "import" not in script
    for wrong in (
        {"a.js": "import { b } from './b.js';", "b.js": "import { a } from './a.js';"},
        {"a.js": "export default 1;"},
        {"a.js": "import all from 'elsewhere';"},
        {"a.js": "const text = '</SCRIPT>';"},
    ):
        with pytest.raises(ValueError):
            one_script(wrong, "a.js")


def test_every_module_of_the_stage_can_stand_in_a_page() -> None:
    files = [(*name.split("/"), file.body.decode()) for name, file in bundle().files.items() if name.endswith(".js")]
    stage = {name: source for folder, name, source in files if folder == "stage"}
    for name in stage:
        assert f"modules['{name}'] = (() => {{" in one_script(stage, name)
    words = json.loads(bundle().files["stage/words/en.json"].body)
    assert {"replay_hint", "cell_not_in_file"} <= words.keys()
