"""The settings of a run: widgets in, frozen configs out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.engine.recorder import RecordConfig
from core.engine.run import RunConfig
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.model.text.chat_template import Message
from core.refusal import Refusal
from pages.shared.conversation import conversation
from pages.shared.html import fill
from pages.shared.language import language, t
from pages.shared.link import LONGEST_IN_LINK, fill_in_defaults
from pages.shared.numbers import count
from pages.shared.prompts import default_prompt, examples
from pages.shared.resources import shelf
from pages.shared.settings import LARGEST_SEED, MOST_NEW, MOST_TEMPERATURE, MOST_TOP_K
from pages.shared.visit import Visit

CANDIDATES_SHOWN = 8
PROMPT_HEIGHT = 68
"""Pixels: two lines, the least that streamlit allows. A longer prompt scrolls; the box can be pulled larger."""


@dataclass(frozen=True, slots=True)
class Controls:
    """What the visitor asks for: the next prefill begins with it.

    `history` is what stands before the prompt: the system prompt, if there is one, and the conversation so far.
    """

    name: str  # of the chosen model
    model: LanguageModel | None  # None while it is loading, or when it cannot be loaded
    problem: Refusal | None
    prompt: str
    in_chat: bool
    system_prompt: str
    history: tuple[Message, ...]
    config: RunConfig


def controls(visit: Visit) -> Controls:
    """Draws prompt and settings, keeps their values over page changes, and returns what they say."""
    defaults = fill_in_defaults()
    with st.container(key="controls_row"):
        prompt_place = st.container(key="prompt_part")
        with st.container(key="settings"):
            name = _model_choice()
            max_new = _number(defaults, "max_new", 1, MOST_NEW)
            seed = _number(defaults, "seed", 0, LARGEST_SEED)
            temperature = _number(defaults, "temperature", 0.0, MOST_TEMPERATURE, 0.1)
            top_k = _number(defaults, "top_k", 0, MOST_TOP_K)
            top_p = _number(defaults, "top_p", 0.0, 1.0, 0.05)
        future, problem = shelf().ask(name), shelf().problem(name)
        model = future.result() if future.done() and problem is None else None
        has_template = model is not None and model.chat_template is not None
        with st.container(key="switches"):
            use_cache = _toggle("kv_cache", "use_cache")
            in_chat = _toggle("chat_template", "chat_template", disabled=not has_template) and has_template
            system_prompt, history = conversation(visit) if in_chat else ("", ())
        with prompt_place:
            prompt = _prompt(name)
    sampling = SamplingConfig(temperature=temperature, top_k=int(top_k), top_p=top_p, seed=int(seed))
    record = RecordConfig(candidates=CANDIDATES_SHOWN, kv_norms=True, queries=True)
    config = RunConfig(use_cache=use_cache, sampling=sampling, max_new=int(max_new), record=record)
    return Controls(name, model, problem, prompt, in_chat, system_prompt, history, config)


def _model_choice() -> str:
    choices = shelf().choices
    if st.session_state["model"] not in choices:  # an older link's, or one that could not be loaded
        st.session_state["model"] = choices[0]
    # Without filter_mode the box would take typed text, and a phone would open its keyboard.
    return str(st.selectbox(t("model"), choices, key="model", persist_state="session", filter_mode=None))


def _prompt(model_name: str) -> str:
    """The prompt and a row of examples. A default that nobody has touched follows the model and the language."""
    default = default_prompt(model_name, language())
    if st.session_state["prompt"] == st.session_state.get("default_prompt"):
        st.session_state["prompt"] = default
    st.session_state["default_prompt"] = default
    prompt = st.text_area(t("prompt"), key="prompt", height=PROMPT_HEIGHT, persist_state="session")
    if len(prompt) > LONGEST_IN_LINK:
        st.html(fill('<p class="tbt-note">{text}</p>', text=t("settings.not_in_link", most=count(LONGEST_IN_LINK))))
    offered = examples(model_name, language())
    st.session_state["example"] = prompt if prompt in offered else None
    st.pills(t("settings.examples"), offered, key="example", on_change=_example_chosen, label_visibility="collapsed")
    return prompt


def _example_chosen() -> None:
    if st.session_state["example"] is not None:
        st.session_state["prompt"] = st.session_state["example"]


def _toggle(name: str, key: str, disabled: bool = False) -> bool:
    return st.toggle(t(name), key=key, persist_state="session", disabled=disabled, help=t(f"{name}_help"))


def _number(defaults: dict[str, Any], key: str, least: float, most: float, step: float = 1) -> float:
    text_format = "%.2f" if isinstance(least, float) else "%d"
    value = st.number_input(
        t(key),
        least,
        most,
        defaults.get(key, "min"),
        step=step,
        format=text_format,
        key=key,
        persist_state="session",
    )
    return float(value)
