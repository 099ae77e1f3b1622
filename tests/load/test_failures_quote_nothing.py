"""A server whose pages and steps fail with exceptions that quote the prompt: its log tells where, and no prompt."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from tests.browser.server import serving
from tests.load.loop import run
from tests.load.plan import Plan
from tests.load.visitor import Visitor

PAGE, STEP = "page-xyzzy-nobody-else-may-read-this", "step-plugh-nobody-else-may-read-this"
# Pages fail for the one prompt, decode steps for the other; everything else is the app as it is.
SCRIPT = f"""
from pathlib import Path
import streamlit as st
from core.engine import finish as finishing
from core.engine.trace import Phase

whole = finishing.finish

def finish(run, done, *rest):
    text = run.model.tokenizer.decode(list(run.prompt_ids))
    if done.phase is Phase.DECODE and {STEP!r} in text:
        raise ValueError(text)
    return whole(run, done, *rest)

finishing.finish = finish

import app as ours
from pages.shared import stepping
from pages.shared.routes import api_routes
from pages.shared.trouble import apologise

frame = stepping.frame_for

def frame_for(event, visit, asked):
    if asked.prompt == {PAGE!r}:
        raise ValueError(asked.prompt)
    return frame(event, visit, asked)

stepping.frame_for = frame_for
folder = Path(ours.__file__).parent
app = st.App(folder / "pages" / "frame.py", lifespan=ours.lifespan, routes=api_routes(""), on_script_error=apologise)
"""


def plan(prompt: str) -> Plan:
    return Plan(prompt, {"lang": "en", "model": "tiny", "max": "8"}, ids=(0,) * 8)


async def fail(address: str) -> None:
    """One visitor whose page fails, one whose Decode fails by stream and by page, one whose prompt is refused."""
    pages, steps, refused = (Visitor(address, plan(prompt)) for prompt in (PAGE, STEP, "xyzzy " * 600))
    await pages.tab.open()
    with suppress(TimeoutError):
        await asyncio.wait_for(pages.tab.write_prompt(PAGE), 3)
    assert any("the page says" in problem for problem in pages.tab.problems)
    await steps.arrive()
    await steps.prefill()
    with suppress(ConnectionError):
        await steps.click()
    with suppress(TimeoutError):
        await asyncio.wait_for(steps.tab.ask("decode"), 3)
    await refused.arrive()
    await asyncio.wait_for(refused.tab.ask("prefill"), 10)
    assert any("the stage says" in problem for problem in refused.tab.problems)
    for visitor in (pages, steps, refused):
        await visitor.vanish()


def test_a_failure_leaves_no_prompt_in_the_log(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with serving(tmp_path, str(script), fails=True) as server:
        run(fail(server.address))
        log = server.log.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines]
    page = lines[events.index("A page failed.")]
    assert page["error"]["type"] == "ValueError" and page["error"]["where"].endswith(" frame_for")
    assert "Traceback" in page["traceback"]
    assert "in finish" in log, "the step's failure is somewhere to be found"
    assert lines[events.index("A run was refused.")]["reason"].startswith("engine.prompt_")
    assert events.count("A visitor came.") == 3
    assert "xyzzy" not in log and "plugh" not in log
