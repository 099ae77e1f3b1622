"""The settings of a run: widgets in, frozen configs out."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.engine.recorder import RecordConfig
from core.engine.run import RunConfig
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from pages.shared.language import t
from pages.shared.resources import shelf
from pages.shared.shelf import SMALL_MODEL

CANDIDATES_SHOWN = 8
MOST_NEW = 1024


@dataclass(frozen=True, slots=True)
class Controls:
    """What the visitor asks for: the next prefill begins with it."""

    name: str  # of the chosen model
    model: LanguageModel | None  # None while it is loading, or when it cannot be loaded
    problem: Refusal | None
    prompt: str
    in_chat: bool
    config: RunConfig


def controls() -> Controls:
    """Draws prompt and settings side by side, keeps their values over page changes, and returns what they say."""
    left, right = st.columns([5, 6], gap="medium")
    with right.container(key="settings"):
        first = st.columns([2, 1, 1, 1], gap="small")
        second = st.columns([1, 1, 1, 1], gap="small", vertical_alignment="bottom")
    name = _model_choice(first[0])
    future, problem = shelf().ask(name), shelf().problem(name)
    model = future.result() if future.done() and problem is None else None
    has_template = model is not None and model.chat_template is not None
    in_chat = second[0].toggle(
        t("chat_template"),
        value=True,
        key="chat_template",
        persist_state="session",
        disabled=not has_template,
        help=t("chat_template_help"),
    )
    config = RunConfig(
        use_cache=second[1].toggle(
            t("kv_cache"), value=True, key="use_cache", persist_state="session", help=t("kv_cache_help")
        ),
        sampling=_sampling(first[1:], second[2]),
        max_new=_number(second[3], "max_new", 64, 1, MOST_NEW),
        record=RecordConfig(candidates=CANDIDATES_SHOWN),
    )
    st.session_state.setdefault("prompt", default_prompt(name))
    prompt = left.text_area(t("prompt"), key="prompt", height=122, persist_state="session")
    return Controls(name, model, problem, prompt, in_chat and has_template, config)


def default_prompt(model_name: str) -> str:
    """Something this model can continue."""
    return t("default_prompt_tiny" if model_name == SMALL_MODEL else "default_prompt")


def _model_choice(place: DeltaGenerator) -> str:
    st.session_state.setdefault("last_model", shelf().choices[0])
    name = place.selectbox(
        t("model"), shelf().choices, key="model", persist_state="session", on_change=_model_changed, filter_mode=None
    )
    return str(name)


def _model_changed() -> None:
    """A default prompt that nobody has touched gives way to the default prompt of the new model."""
    if st.session_state.get("prompt") == default_prompt(st.session_state["last_model"]):
        st.session_state["prompt"] = default_prompt(st.session_state["model"])
    st.session_state["last_model"] = st.session_state["model"]


def _sampling(places: list[DeltaGenerator], seed_place: DeltaGenerator) -> SamplingConfig:
    temperature = places[0].number_input(
        t("temperature"), 0.0, 5.0, 0.0, 0.1, key="temperature", format="%.2f", persist_state="session"
    )
    top_k = _number(places[1], "top_k", 0, 0, 1_000_000)
    top_p = places[2].number_input(t("top_p"), 0.0, 1.0, 1.0, 0.05, key="top_p", format="%.2f", persist_state="session")
    seed = _number(seed_place, "seed", 0, 0, 2**31 - 1)
    return SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)


def _number(place: DeltaGenerator, key: str, value: int, least: int, most: int) -> int:
    return place.number_input(t(key), least, most, value, 1, key=key, persist_state="session")
