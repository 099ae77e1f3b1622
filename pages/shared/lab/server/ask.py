"""Before anything is measured: what a learner expects of a server, and the command that asks it."""

from __future__ import annotations

import shlex

import streamlit as st

from core.estimate import catalogue
from core.estimate.dtypes import DTYPES
from core.lab.remote.limits import MOST_REPEATS, Limits
from core.lab.remote.plan import RemotePlan, check_plan
from core.refusal import Refusal
from pages.shared.guess import guess
from pages.shared.html import join
from pages.shared.html_parts import note
from pages.shared.lab.asked import numbers
from pages.shared.language import t
from pages.shared.numbers import count
from pages.shared.settings import PLANNER_WEIGHTS
from pages.shared.trouble import refuse

GUESSES = (1, 2, 5, 20)
OTHER = "other"
PLACE = "http://127.0.0.1:8000/v1"
"""Where vLLM listens on the machine it runs on; who measures another server changes it in the terminal."""
_FIRST = {"contexts": "1024,4096,16384", "batches": "1,4,16"}


def expected() -> int | None:
    """How many times its floor a step is expected to take."""
    names = {times: t("server.guess_times", times=count(times)) for times in GUESSES}
    return guess(t("server.guess"), names, "lab_server_guess")


def show_command() -> None:
    """What to measure, and the command that does. The address is put in where the command runs, never here."""
    with st.container(key="lab_server_asked"):
        model = _choice("model", (*catalogue.models(), OTHER), "qwen3-32b")
        is_known = model != OTHER
        weights = _choice("weights", PLANNER_WEIGHTS, "bf16") if is_known else "bf16"
        kv = _choice("kv", tuple(DTYPES), "bf16") if is_known else "bf16"
        lists = {
            name: st.text_input(t(f"server.{name}"), first, key=f"lab_server_{name}", persist_state="session")
            for name, first in _FIRST.items()
        }
        repeats = int(
            st.number_input(t("lab.repeats"), 1, MOST_REPEATS, 3, key="lab_server_repeats", persist_state="session")
        )
    try:
        plan = RemotePlan(
            contexts=numbers(lists["contexts"], "contexts"),
            batches=numbers(lists["batches"], "batches"),
            repeats=repeats,
        )
        check_plan(plan, Limits())
    except Refusal as refusal:
        refuse(refusal)
        return
    st.code(command(plan, model if is_known else "", weights, kv), language=None, wrap_lines=True)
    planned = {"points": count(plan.n_points), "requests": count(plan.n_requests), "tokens": count(plan.tokens)}
    notes = (t("server.planned", **planned), t("server.command_note"), t("server.key_note"))
    st.html(join(map(note, notes)))


def command(plan: RemotePlan, model: str, weights: str, kv: str) -> str:
    """The command that measures a plan; what is its default is not said."""
    words = [".venv/bin/python", "-m", "core", "sweep", "--endpoint", PLACE]
    words += ["--model", model] if model else []
    words += ["--weight-dtype", weights] if weights != "bf16" else []
    words += ["--kv-dtype", kv] if kv != "bf16" else []
    words += ["--contexts", ",".join(map(str, plan.contexts)), "--batches", ",".join(map(str, plan.batches))]
    return shlex.join([*words, "--repeats", str(plan.repeats), "--csv", "server.csv"])


def _choice(name: str, choices: tuple[str, ...], first: str) -> str:
    return str(
        st.selectbox(
            t(f"server.{name}"),
            choices,
            choices.index(first),
            format_func=_called,
            key=f"lab_server_{name}",
            persist_state="session",
            filter_mode=None,
        )
    )


def _called(name: str) -> str:
    if name == OTHER:
        return t("server.other_model")
    known = catalogue.models().get(name)
    return known.name if known else name
